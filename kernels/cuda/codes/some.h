// SPDX-License-Identifier: Apache-2.0
// Products of some rows of e4m3 by codes of e4m3, more than batch.h takes: bound by the weights'
// bytes still. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_CODES_SOME_H
#define BERTH_KERNELS_CUDA_CODES_SOME_H

#include <cuda/codes/codes.h>

#define CUDA_SOME_ROWS 64 // at most

// How a product is divided: tiles of so many outputs, and the depth of each among the blocks of a
// cluster.
struct cuda_some_plan {
    int tile;  // 0: the product is not for this kernel
    int split; // blocks
};

// At start-up. `bytes`: of a row of the weight, a multiple of 128.
cuda_some_plan cuda_some_plan_for(const gpu_op *op, int outputs, int bytes);
// x and y aligned to 16 bytes, rows of them too.
berth_status cuda_some_scaled(const gpu_op *op, const cuda_coded &all, const cuda_some_plan &plan,
                              berth_dtype y);

#endif
