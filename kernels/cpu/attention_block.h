// SPDX-License-Identifier: Apache-2.0
// What attention is shown of other operands than paged keys and values: rows in no cache as a cache
// of one block, rows that are both keys and values; and the sizes of a site.
#ifndef BERTH_KERNELS_CPU_ATTENTION_BLOCK_H
#define BERTH_KERNELS_CPU_ATTENTION_BLOCK_H

#include <berth/op.h>

#include <cpu/attention_tile.h>

#include <string.h>

// The largest that a dimension is in any step; 0 where the site does not know.
static inline int64_t dim_most(const berth_op_site *site, berth_dim dim) {
    const int64_t symbol = dim.symbol == BERTH_SYMBOL_TOKENS      ? (int64_t)site->max_tokens
                           : dim.symbol == BERTH_SYMBOL_SEQUENCES ? (int64_t)site->max_sequences
                                                                  : 0;
    return pieces(dim.a * symbol + dim.b, dim.c);
}

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

// Rows [blocks, block_size, width] that serve all heads, as keys and, with their first columns, as
// values.
typedef struct shared_rows {
    berth_tensor keys;
    berth_tensor values;
    int64_t shapes[2][4];
    int64_t strides[4];
} shared_rows;

static inline void share_rows(const berth_tensor *kept, int64_t value_width, shared_rows *out) {
    const int64_t widths[] = {kept->shape[2], value_width};
    for (int i = 0; i < 2; ++i) {
        const int64_t shape[] = {kept->shape[0], kept->shape[1], 1, widths[i]};
        memcpy(out->shapes[i], shape, sizeof shape);
    }
    const int64_t strides[] = {kept->strides[0], kept->strides[1], kept->strides[1], 1};
    memcpy(out->strides, strides, sizeof strides);
    out->keys = *kept;
    out->keys.ndim = 4;
    out->keys.shape = out->shapes[0];
    out->keys.strides = out->strides;
    out->values = out->keys;
    out->values.shape = out->shapes[1];
}

#endif
