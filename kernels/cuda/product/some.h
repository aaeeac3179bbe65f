// SPDX-License-Identifier: Apache-2.0
// Products of some rows, more than the kernels that stream weights take: bound by the weights'
// bytes still. y [rows, outputs] = x · weightᵀ + bias, of 16 bits, sums in f32; x and weight are
// of y's type, or codes of e4m3. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_H

#include <cuda/codes/groups.h>
#include <gpu/launch.h>

#define CUDA_SOME_ROWS 64 // of a tile

struct cuda_some {
    int rows, outputs;
    int bytes; // of a row of the weight

    const void *x; // rows x_gap bytes apart
    int64_t x_gap;
    const void *weight; // [outputs, bytes], dense
    void *y;            // rows y_gap elements apart
    int64_t y_gap;
    const void *bias; // NULL: none
    berth_dtype bias_dtype;

    // Of codes; NULL: numbers. A scale for every output, and one for every row or all of them.
    const float *scales;
    const float *x_scales;
    int x_scale_gap; // 1; 0: of all rows
    // Where columns have scales of their own; the scales above are NULL then.
    cuda_groups groups;
};

// How a product of up to so many rows is divided: tiles of so many outputs, and the depth of each
// among the blocks of a cluster.
struct cuda_some_plan {
    int rows;
    int tile;  // 0: the product is not for this kernel
    int split; // blocks
    double microseconds;
};

// At start-up, for a multiple of CUDA_SOME_ROWS; `all` has rows, outputs and bytes.
cuda_some_plan cuda_some_plan_for(const gpu_op *op, const cuda_some &all);
// Whether the plan is one, rows are few enough, and x, y and their rows are aligned to 16 bytes.
bool cuda_some_takes(const cuda_some &all, const cuda_some_plan &plan);
// bf16 or f16.
berth_status cuda_some_numbers(const gpu_op *op, const cuda_some &all, const cuda_some_plan &plan,
                               berth_dtype dtype);
// x and weight of f8_e4m3fn.
berth_status cuda_some_scaled(const gpu_op *op, const cuda_some &all, const cuda_some_plan &plan,
                              berth_dtype y);
// The same by scales of groups that are blocks.
berth_status cuda_some_groups(const gpu_op *op, const cuda_some &all, const cuda_some_plan &plan,
                              berth_dtype y);

#endif
