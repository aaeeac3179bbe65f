// SPDX-License-Identifier: Apache-2.0
// Products of few rows with experts' matrices of codes on a GPU: a warp an output of every row.
#ifndef BERTH_KERNELS_GPU_CODES_FEW_H
#define BERTH_KERNELS_GPU_CODES_FEW_H

#include "codes_product.h"

static __device__ inline int32_t gpu_codes_warp_sum(int32_t value) {
    for (int mask = 16; mask > 0; mask /= 2) {
        value += gpu_shuffle_xor(value, mask);
    }
    return value;
}
static __device__ inline float gpu_codes_warp_sum(float value) {
    return gpu_warp_sum(value);
}

// N elements from k on: of i8, up to 16 products, which a float sums exactly.
template <typename X, int N>
static __device__ inline float gpu_codes_dot(const gpu_codes_product &all,
                                             const gpu_codes_place &at,
                                             const typename X::element *x, int k) {
    using element = typename X::element;
    constexpr int M = N < gpu_wide<element> ? N : gpu_wide<element>;
    float weights[N];
    if constexpr (N == 1) {
        weights[0] = gpu_codes_at(all, at.expert, at.output, k);
    } else {
        const int group = all.scales.across > 1 ? k / static_cast<int>(all.scales.columns) : 0;
        const float zero = gpu_codes_zero(all, gpu_codes_group(all, at.expert, at.output, group));
        const uint8_t *row = gpu_codes_row(all, at.expert, at.output);
        gpu_codes_widen<N>(all.code, gpu_codes_load<N>(all.code, row, k), zero, weights);
    }
    float sum = 0;
#pragma unroll
    for (int first = 0; first < N; first += M) {
        const gpu_pack<element, M> numbers = gpu_load<element, M>(x, k + first);
#pragma unroll
        for (int j = 0; j < M; ++j) {
            sum += X::number(numbers.at[j]) * weights[first + j];
        }
    }
    return sum;
}

// blockIdx.x: which outputs; blockIdx.y: the choice. N elements are of one group.
template <typename T, typename X, int N>
static __global__ void gpu_codes_few_kernel(gpu_choices choices, gpu_codes_product all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    gpu_codes_place at;
    at.p = blockIdx.y;
    at.expert = gpu_expert_of(choices, at.p);
    at.output = static_cast<int>(blockIdx.x) * GPU_EXPERTS_WARPS + threadIdx.y;
    if (at.expert < 0 || at.output >= all.outputs) {
        return; // the whole warp
    }
    const int64_t row = at.p / all.rows_per_x;
    const auto *x = gpu_row<const typename X::element>(all.x, row);
    const bool is_grouped = all.scales.across > 1;
    typename X::sum sum = 0;
    float total = 0;
    for (int k = threadIdx.x * N; k < all.depth; k += 32 * N) {
        const float dot = gpu_codes_dot<X, N>(all, at, x, k);
        if (is_grouped) {
            const int group = k / static_cast<int>(all.scales.columns);
            total += dot * gpu_codes_x_scale(all, row, group) *
                     gpu_codes_weight_scale(all, at.expert, at.output, group);
        } else {
            sum += static_cast<typename X::sum>(dot);
        }
    }
    sum = gpu_codes_warp_sum(sum);
    total = gpu_warp_sum(total);
    if (threadIdx.x == 0 && is_grouped) {
        gpu_codes_store<T>(all, at, total, true);
    } else if (threadIdx.x == 0) {
        gpu_codes_store<T>(all, at, sum, false);
    }
}

#endif
