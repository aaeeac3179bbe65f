// SPDX-License-Identifier: Apache-2.0
// Keys and values that are in no cache, as a cache of one block.
#ifndef BERTH_KERNELS_CPU_ATTENTION_BLOCK_H
#define BERTH_KERNELS_CPU_ATTENTION_BLOCK_H

#include <berth/types.h>

static const int32_t only_block = 0;

// The block table of a sequence that lies in a cache of one block.
static inline berth_tensor only_table(void) {
    static const int64_t ones[] = {1, 1};
    return (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = (void *)&only_block,
        .ndim = 2,
        .dtype = BERTH_DTYPE_I32,
        .shape = ones,
        .strides = ones,
    };
}

// Rows [rows, heads, width] as a cache of one block.
static inline berth_tensor as_block(const berth_tensor *rows, int64_t shape[4],
                                    int64_t strides[4]) {
    berth_tensor out = *rows;
    shape[0] = 1;
    strides[0] = 0;
    for (int dim = 0; dim < 3; ++dim) {
        shape[dim + 1] = rows->shape[dim];
        strides[dim + 1] = rows->strides[dim];
    }
    out.ndim = 4;
    out.shape = shape;
    out.strides = strides;
    return out;
}

#endif
