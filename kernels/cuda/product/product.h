// SPDX-License-Identifier: Apache-2.0
// The two ways of cuda.linear: an own kernel for few rows, which is bound by the weights' bytes,
// and cuBLASLt, opened when it is first needed, for more. y [rows, outputs] = x · weightᵀ + bias,
// all of one type, sums in f32.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_H
#define BERTH_KERNELS_CUDA_PRODUCT_H

#include <gpu/launch.h>

#define CUDA_FEW_ROWS 16 // at most, of the own kernel

struct cuda_product {
    const void *x;      // [rows, depth], rows x_gap elements apart
    const void *weight; // [outputs, depth], dense
    const void *bias;   // [outputs], NULL: none
    void *y;            // [rows, outputs], rows y_gap elements apart
    int64_t x_gap;
    int64_t y_gap;
    int rows;
    int outputs;
    int depth;
    berth_dtype dtype;
};

// What the kernels of few rows are given.
struct cuda_few_operands {
    const uint16_t *x;
    const uint16_t *weight;
    const void *bias;
    void *y;
    int64_t x_gap, y_gap;
    int rows, outputs, depth;
};

static inline cuda_few_operands cuda_few_operands_of(const cuda_product &product) {
    return cuda_few_operands{static_cast<const uint16_t *>(product.x),
                             static_cast<const uint16_t *>(product.weight),
                             product.bias,
                             product.y,
                             product.x_gap,
                             product.y_gap,
                             product.rows,
                             product.outputs,
                             product.depth};
}

// bf16 and f16; depth a multiple of 8, everything aligned to 16 bytes.
berth_status cuda_few_rows(const gpu_op *op, const cuda_product &product);
// The same on compute capability 9.
berth_status cuda_streamed_rows(const gpu_op *op, const cuda_product &product);

// ---- cuBLASLt -----------------------------------------------------------------------------------

#define CUDA_LT_WORKSPACE (UINT64_C(32) << 20) // bytes

// What a weight's shape needs: descriptors and chosen algorithms. Shared by all layers of a shape,
// kept by the platform.
struct cuda_lt;

// BERTH_UNSUPPORTED with the loader's text where there is no cuBLASLt.
berth_status cuda_lt_check(const berth_host *host, const berth_device *device);
// Finds or makes what the shape needs; times algorithms on the device. `max_rows` of a step.
berth_status cuda_lt_open(const gpu_op *op, const cuda_product &shape, int max_rows,
                          const cuda_lt **out);
berth_status cuda_lt_run(const gpu_op *op, const cuda_lt *lt, const cuda_product &product,
                         void *workspace);

#endif
