// SPDX-License-Identifier: Apache-2.0
// The kernel that streamed_codes.cu describes: how a block begins, and how it goes through its
// tiles. What x is made of is known to the file that launches it.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_KERNEL_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_KERNEL_H

#include <cuda/codes/streamed_multiply.h>

namespace {

// Everything of a warp that multiplies.
template <typename T, typename K, int EIGHTS> struct multiplier {
    const cuda_coded &all;
    const ring &from;
    room_of<K, EIGHTS> (*room)[K::WARPS];
    place at = {0, 0};
    position now = {static_cast<int>(blockIdx.x) * OUTPUTS, 0};
    int tile = 0;
    ahead<K, EIGHTS> loaded;
    typename K::template sums<EIGHTS> sums;
    results<K, EIGHTS> mine;

    template <typename I> __device__ void begin(const I &before, const typename I::ahead &fetched) {
        const int part = static_cast<int>(threadIdx.y) * (STAGE / K::WARPS);
        const int first = part + threadIdx.x % 4 * 16;
        if constexpr (K::IS_NEAR) {
            before.template keep<K>(all, from, fetched);
            const uint32_t rest = K::rest();
#pragma unroll
            for (int i = 0; i < K::X_LOADS; ++i) {
                loaded.x[0].at[0][i] = loaded.x[1].at[0][i] = {rest, rest, rest, rest};
            }
            loaded.near = K::place(all, from.x, from.gap, part * K::X_RATIO);
        } else {
            load_inputs<K, EIGHTS>(all, first, &loaded.x[0]);
        }
        loaded.of[0].load(all, now.first, part, from.sums);
        mine.prepare(all, now.first, tile);
    }
    template <int TURN> __device__ void stage() {
        const position next = now.next(all);
        multiply_stage<K, EIGHTS, TURN>(all, from, now, &at, &loaded, &sums);
        if (next.first != now.first) {
            constexpr int COUNT = ROOMS<K, EIGHTS>;
            finish<T, K, EIGHTS>(all, sums, mine, room[tile % COUNT], now.first, tile);
            if (COUNT == 1) {
                wait_for_all<K>();
            }
            sums = {};
            mine.prepare(all, next.first, ++tile);
        }
        now = next;
    }
};

// x as it is in memory, copied where it is near.
struct stored_inputs {
    struct ahead {};
    template <typename K> __device__ ahead fetch() const {
        return {};
    }
    __device__ const float *scales(const cuda_coded &all) const {
        return all.x_scales;
    }
    template <typename K>
    __device__ void keep(const cuda_coded &all, const ring &to, const ahead &) const {
        keep_inputs<K>(all, to);
    }
};

// The row in digits, which one copy brings.
struct stored_digits {
    struct ahead {};
    template <typename K> __device__ ahead fetch() const {
        return {};
    }
    __device__ const float *scales(const cuda_coded &) const {
        return nullptr;
    }
    template <typename K>
    __device__ void keep(const cuda_coded &all, const ring &to, const ahead &) const {
        __shared__ __align__(8) uint64_t signal;
        const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&signal));
        const uint32_t groups = static_cast<uint32_t>(all.bytes / PIECE);
        if (threadIdx.y == 0 && threadIdx.x == 0) {
            cuda_barrier_init(barrier, 1);
            cuda_barrier_publish();
            cuda_barrier_expect(barrier, cuda_digits_bytes(groups));
            cuda_bulk_copy_shared(to.x, all.x, groups * CUDA_DIGIT_BYTES, barrier);
            cuda_bulk_copy_shared(to.sums, all.x + groups * CUDA_DIGIT_BYTES,
                                  groups * CUDA_DIGIT_KNOWN, barrier);
        }
        wait_for_all<K>();
        cuda_barrier_wait(barrier, 0);
    }
};

// I: where x comes from. `fetch` is what needs no input, `scales` where those of its rows will be.
template <typename T, typename K, int EIGHTS, typename I>
__global__ void __launch_bounds__((K::WARPS + 1) * 32, BLOCKS)
    streamed_codes_kernel(cuda_coded given, layout places, I before,
                          const __grid_constant__ CUtensorMap codes) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * STAGES];
    __shared__ room_of<K, EIGHTS> room[ROOMS<K, EIGHTS>][K::WARPS];
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const uint32_t memory = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    cuda_coded all = given;
    all.x_scales = before.scales(given);
    const ring stages = {memory,
                         signal,
                         signal + 8 * STAGES,
                         places.stages,
                         memory + places.x(),
                         places.gap,
                         memory + places.sums(all.rows)};
    gpu_let_next_begin();
    if (threadIdx.y == K::WARPS && threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            cuda_barrier_init(stages.full + 8 * stage, 1);
            cuda_barrier_init(stages.empty + 8 * stage, K::WARPS);
        }
        cuda_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.y == K::WARPS) {
        if (cuda_is_elected()) {
            bring<K>(all, stages, &codes);
        }
        return;
    }
    const typename I::ahead fetched = before.template fetch<K>();
    gpu_wait_for_inputs();
    multiplier<T, K, EIGHTS> self = {all, stages, room};
    self.begin(before, fetched);
    while (self.now.first < all.outputs) {
        self.template stage<0>();
        if (self.now.first < all.outputs) {
            self.template stage<1>();
        }
    }
}

} // namespace

#endif
