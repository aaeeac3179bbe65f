// SPDX-License-Identifier: Apache-2.0
// x that the warps which multiply make for themselves, in every block anew, while the first stages
// of its weight are on their way: a product needs no kernel before it. Only fused_codes.cu includes
// this.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_BEFORE_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_BEFORE_H

#include <cuda/codes/before.h>
#include <cuda/codes/streamed_ring.h>

namespace {

// The warps of a block that multiply.
template <typename K> struct multipliers {
    float *room; // one for a warp

    __device__ int thread() const {
        return static_cast<int>(threadIdx.y * 32 + threadIdx.x);
    }
    __device__ static constexpr int count() {
        return K::WARPS * 32;
    }
    // Of all; the room is free again after the next sum in another one.
    __device__ float sum(float value) const {
        const float own = gpu_warp_sum(value);
        if (threadIdx.x == 0) {
            room[threadIdx.y] = own;
        }
        wait_for_all<K>();
        value = room[0];
#pragma unroll
        for (int warp = 1; warp < K::WARPS; ++warp) {
            value += room[warp];
        }
        return value;
    }
};

// Of a norm, by codes of 4 bits. HELD: times eight elements of a thread.
template <typename T, int HELD> struct made_inputs {
    using ahead = cuda_ahead<T, HELD>;
    cuda_before all;

    template <typename K> __device__ ahead fetch() const {
        return ahead::of(all, multipliers<K>{nullptr});
    }
    template <typename K>
    __device__ void keep(const cuda_coded &, const ring &to, const ahead &fetched) const {
        // Two rooms in turns: a warp may be a row ahead of another one, but not two.
        __shared__ float room[2][K::WARPS];
        for (int row = 0; row < all.rows; ++row) {
            const multipliers<K> together = {room[row % 2]};
            cuda_held_row<T, HELD> held;
            cuda_make_row<T, HELD, CUDA_NORM>(all, row, blockIdx.x == 0, together, fetched, &held);
#pragma unroll
            for (int i = 0; i < HELD; ++i) {
                const int k = held.element(together, i);
                keep_piece<K>(to, row, k / 8, k < all.width,
                              *reinterpret_cast<const uint4 *>(&held.at[i]));
            }
        }
        wait_for_all<K>();
    }
};

} // namespace

#endif
