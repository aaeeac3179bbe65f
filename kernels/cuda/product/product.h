// SPDX-License-Identifier: Apache-2.0
// The two ways of cuda.linear: an own kernel for few rows, which is bound by the weights' bytes,
// and cuBLASLt, opened when it is first needed, for more. y [rows, outputs] = x · weightᵀ + bias,
// all of one type, sums in f32. cuBLASLt also multiplies codes of 8 bits.
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
    // cuBLASLt only: x and weight are codes of this type and `dtype` is y's; BERTH_DTYPE_NONE: they
    // are numbers of `dtype`. y is the sums of products without bias, in i32 of i8 and in f32 of
    // f8_e4m3fn; or of f8_e4m3fn 16 bits, with a scale for every row of x and every output.
    berth_dtype codes;
    const float *x_scales;
    const float *scales;
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

// Most rows that an input of the site can have: its dims but the last, at their largest.
static inline int cuda_max_rows(const berth_op_site *site, uint64_t input) {
    const berth_value_type *x = site->inputs[input];
    int64_t rows = 1;
    for (uint32_t i = 0; i + 1 < x->ndim; ++i) {
        const berth_dim dim = x->dims[i];
        const int64_t symbol =
            dim.symbol == BERTH_SYMBOL_TOKENS      ? static_cast<int64_t>(site->max_tokens)
            : dim.symbol == BERTH_SYMBOL_SEQUENCES ? static_cast<int64_t>(site->max_sequences)
                                                   : 0;
        rows *= (dim.a * symbol + dim.b + dim.c - 1) / dim.c;
    }
    return static_cast<int>(rows > 0 ? rows : 1);
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
// What a product of about so many rows took when algorithms were timed; negative: not known.
float cuda_lt_milliseconds(const cuda_lt *lt, int rows);
berth_status cuda_lt_run(const gpu_op *op, const cuda_lt *lt, const cuda_product &product,
                         void *workspace);

#endif
