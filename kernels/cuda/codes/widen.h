// SPDX-License-Identifier: Apache-2.0
// Products of many rows whose weights have codes and scales of groups: codes become numbers of 16
// bits, some outputs at a time, which cuBLASLt multiplies.
#ifndef BERTH_KERNELS_CUDA_CODES_WIDEN_H
#define BERTH_KERNELS_CUDA_CODES_WIDEN_H

#include <cuda/product/product.h>
#include <gpu/codes_product.h>

#define CUDA_WIDE            8                   // codes of a thread, which are of one group
#define CUDA_WIDENED_BYTES   (INT64_C(64) << 20) // at a time
#define CUDA_WIDENED_THREADS 256

// Rows of codes, and what makes numbers of them.
struct cuda_widened {
    const uint8_t *codes;
    const uint8_t *zeros; // like the scales; NULL: the code's own
    const float *factors; // of rows; NULL: 1
    gpu_code_scales scales;
    berth_code code;
    int64_t gap; // bytes, from row to row
    int depth;
    int first;  // row
    int count;  // of rows
    float zero; // the code's own; cuda_widen sets it
};

// CUDA_WIDE numbers of a row from k on. Why not gpu_code_scale: its divisions of 64 bits take
// longer than all else.
template <typename T>
static __device__ inline gpu_pack<T, CUDA_WIDE> cuda_widen_some(const cuda_widened &all, int row,
                                                                int k) {
    const int down = static_cast<int>(all.scales.rows);
    const int64_t at = (down == 1 ? row : row / down) * all.scales.across +
                       k / static_cast<int>(all.scales.columns);
    const float factor = all.factors ? all.factors[row] : 1.0f;
    const float scale = gpu_load_any(all.scales.data, all.scales.dtype, at) * factor;
    const float zero = all.zeros ? static_cast<float>(all.zeros[at]) : all.zero;
    const gpu_codes_words<CUDA_WIDE> codes =
        gpu_codes_load<CUDA_WIDE>(all.code, all.codes + row * all.gap, k);
    float numbers[CUDA_WIDE];
    gpu_pack<T, CUDA_WIDE> rounded;
    gpu_codes_widen<CUDA_WIDE>(all.code, codes, zero, numbers);
#pragma unroll
    for (int j = 0; j < CUDA_WIDE; ++j) {
        rounded.at[j] = gpu_round<T>(numbers[j] * scale);
    }
    return rounded;
}

template <typename T> static __global__ void cuda_widen_kernel(cuda_widened all, T *to) {
    const int k = (static_cast<int>(blockIdx.x) * CUDA_WIDENED_THREADS + threadIdx.x) * CUDA_WIDE;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int row = blockIdx.y; row < all.count && k < all.depth; row += gridDim.y) {
        gpu_store<T, CUDA_WIDE>(to + row * static_cast<int64_t>(all.depth), k,
                                cuda_widen_some<T>(all, all.first + row, k));
    }
}

// Without gaps, in bf16 or f16.
static inline berth_status cuda_widen(const gpu_op *op, cuda_widened all, berth_dtype dtype,
                                      void *to) {
    constexpr int MOST = 65535; // of a grid's second dimension
    const gpu_grid grid = {dim3(gpu_ceil(all.depth, CUDA_WIDENED_THREADS * CUDA_WIDE),
                                static_cast<unsigned>(all.count < MOST ? all.count : MOST)),
                           dim3(CUDA_WIDENED_THREADS), 0};
    const char *name = "codes as numbers";
    all.zero = berth_code_zero(all.code);
    return dtype == BERTH_DTYPE_BF16 ? gpu_run(op, name, grid, cuda_widen_kernel<gpu_bf16>, all,
                                               static_cast<gpu_bf16 *>(to))
                                     : gpu_run(op, name, grid, cuda_widen_kernel<gpu_f16>, all,
                                               static_cast<gpu_f16 *>(to));
}

// Outputs that are widened at a time.
static inline int cuda_widened_slice(int64_t outputs, int64_t depth) {
    const int64_t slices = (outputs * depth * 2 + CUDA_WIDENED_BYTES - 1) / CUDA_WIDENED_BYTES;
    const int64_t slice = (outputs / slices + 127) / 128 * 128;
    return static_cast<int>(slice < outputs ? slice : outputs);
}

struct cuda_widened_weights {
    cuda_widened all;
    int slice;
};

// All outputs of `all`, whose weight is the place of a slice's numbers.
static inline berth_status cuda_multiply_widened(const gpu_op *op, const cuda_lt *lt,
                                                 cuda_widened_weights weights,
                                                 const cuda_product &all, char *room) {
    berth_status status = BERTH_OK;
    for (int first = 0; first < all.outputs && status == BERTH_OK; first += weights.slice) {
        const int64_t bytes = static_cast<int64_t>(first) * 2;
        cuda_product p = all;
        p.bias = all.bias ? static_cast<const char *>(all.bias) + bytes : nullptr;
        p.y = static_cast<char *>(all.y) + bytes;
        p.outputs = all.outputs - first < weights.slice ? all.outputs - first : weights.slice;
        weights.all.first = first;
        weights.all.count = p.outputs;
        status = cuda_widen(op, weights.all, all.dtype, const_cast<void *>(all.weight));
        status = status == BERTH_OK ? cuda_lt_run(op, lt, p, room) : status;
    }
    return status;
}

#endif
