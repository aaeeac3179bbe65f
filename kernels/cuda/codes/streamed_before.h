// SPDX-License-Identifier: Apache-2.0
// x that the warps which multiply make for themselves, in every block anew, while the first stages
// of its weight are on their way: a product needs no kernel before it. Only fused_codes.cu includes
// this.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_BEFORE_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_BEFORE_H

#include <cuda/codes/before.h>
#include <cuda/codes/streamed_ring.h>

namespace {

constexpr int MADE_ROWS = 8; // at most

// The warps of a block that multiply.
template <typename K> struct multipliers {
    float *room; // two for a warp

    __device__ int thread() const {
        return static_cast<int>(threadIdx.y * 32 + threadIdx.x);
    }
    __device__ static constexpr int count() {
        return K::WARPS * 32;
    }
    // What each warp has, to all; the room is free again after the next exchange in another one.
    template <typename F> __device__ float exchange(float value, float *at, F combine) const {
        if (threadIdx.x == 0) {
            at[threadIdx.y] = value;
        }
        wait_for_all<K>();
        value = at[0];
#pragma unroll
        for (int warp = 1; warp < K::WARPS; ++warp) {
            value = combine(value, at[warp]);
        }
        return value;
    }
    __device__ float sum(float value) const {
        return exchange(gpu_warp_sum(value), room, [](float a, float b) { return a + b; });
    }
    __device__ float largest(float value) const {
        return exchange(gpu_warp_max(value), room + K::WARPS,
                        [](float a, float b) { return gpu_larger_size(a, b); });
    }
};

// HELD: times eight elements of a thread. STEPS: those that there is code for.
template <typename T, int HELD, int STEPS> struct made_inputs {
    using ahead = cuda_ahead<T, HELD>;
    cuda_before all;

    template <typename K> __device__ ahead fetch() const {
        return ahead::of(all, multipliers<K>{nullptr});
    }
    // Where a block has the scales of its rows; of x that is no codes there are none.
    static __device__ float *own_scales() {
        __shared__ float scales[MADE_ROWS];
        return scales;
    }
    __device__ const float *scales(const cuda_coded &) const {
        return own_scales();
    }
    template <typename K>
    __device__ void keep(const cuda_coded &, const ring &to, const ahead &fetched) const {
        // Two rooms in turns: a warp may be a row ahead of another one, but not two.
        __shared__ float room[2][2 * K::WARPS];
        for (int row = 0; row < all.rows; ++row) {
            const multipliers<K> together = {room[row % 2]};
            cuda_held_row<T, HELD> held;
            cuda_make_row<T, HELD, STEPS>(all, row, blockIdx.x == 0, together, fetched, &held);
            if constexpr (K::X_RATIO == 1) {
                keep_codes<K>(to, row, together, held);
            } else {
                keep_numbers<K>(to, row, together, held);
            }
        }
        wait_for_all<K>();
    }
    template <typename K>
    __device__ void keep_codes(const ring &to, int row, const multipliers<K> &together,
                               const cuda_held_row<T, HELD> &held) const {
        constexpr bool IS_I8 = static_cast<typename K::sum>(0.5f) == 0;
        const auto coder = cuda_coder_of<IS_I8>(all, together, held);
        const uint32_t first = to.x + static_cast<uint32_t>(row) * to.gap;
        if (together.thread() == 0) {
            own_scales()[row] = coder.scale;
        }
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int k = held.element(together, i);
            const uint2 codes = coder.codes(held.at[i]);
            if (k < all.width) {
                asm volatile(
                    "st.shared.v2.u32 [%0], {%1,%2};" ::"r"(first + static_cast<uint32_t>(k)),
                    "r"(codes.x), "r"(codes.y)
                    : "memory");
            }
        }
    }
    template <typename K>
    __device__ void keep_numbers(const ring &to, int row, const multipliers<K> &together,
                                 const cuda_held_row<T, HELD> &held) const {
        constexpr int AT_ONCE = HELD > 2 ? 1 : HELD; // more take more registers than there are
#pragma unroll
        for (int i = 0; i < HELD; i += AT_ONCE) {
            keep_pieces<K, AT_ONCE>(to, row, held.element(together, i) / 8, all.width / 8,
                                    reinterpret_cast<const uint4 *>(&held.at[i]));
        }
    }
};

} // namespace

#endif
