// SPDX-License-Identifier: Apache-2.0
// The first two linear layers of a gated MLP and its activation, for more rows than the kernels
// that are bound by the weights' bytes take: y [rows, outputs] = silu(gate) · up, where gate and up
// are the halves of x · weightᵀ + bias. All of one type of 16 bits, sums in f32; both halves and
// silu are rounded to it. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_GATED_H
#define BERTH_KERNELS_CUDA_PRODUCT_GATED_H

#include <gpu/launch.h>

#define CUDA_GATED_ROWS 256 // at most

struct cuda_gated {
    int rows, outputs;
    int bytes; // of a row of the weight

    const void *x; // rows x_gap bytes apart
    int64_t x_gap;
    const void *weight; // [2 · outputs, bytes], dense
    const void *bias;   // [2 · outputs], NULL: none
    void *y;            // rows y_gap elements apart
    int64_t y_gap;
};

// Whether so many outputs leave few of a device's multiprocessors idle.
bool cuda_gated_pays(int multiprocessors, int64_t outputs);
// Whether rows are few enough, and x, y and their rows aligned to 16 bytes.
bool cuda_gated_takes(const cuda_gated &all);
// bf16 or f16.
berth_status cuda_gated_run(const gpu_op *op, const cuda_gated &all, berth_dtype dtype);

#endif
