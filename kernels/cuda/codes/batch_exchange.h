// SPDX-License-Identifier: Apache-2.0
// What a block of batch_kernel.h does with the sums of its tiles: results of tiles that are its
// own, and parts of those that several blocks make. These are exchanged through memory, and each
// block adds up a share of them, always in the same order.
#ifndef BERTH_KERNELS_CUDA_CODES_BATCH_EXCHANGE_H
#define BERTH_KERNELS_CUDA_CODES_BATCH_EXCHANGE_H

#include <cuda/codes/batch_stage.h>
#include <cuda/order.h>

namespace {

__device__ void wait_for_all() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// Sums of a thread: of each half of its group's outputs K::ROWS / 2, as the tensor core has them.
// Four of them are a quad: outputs g and g + 8 of rows 2c and 2c + 1 of eight.
template <typename K> struct exchange {
    static constexpr int COUNT = K::ROWS / 2;
    static constexpr int QUADS = HALVES * COUNT / 4;
    static constexpr int AT_ONCE = QUADS < 4 ? QUADS : 4; // quads of a part on their way together
    const batch_call &in;
    const share &of;
    uint64_t before_first; // of the first thread: arrivals before the block's, at its first tile,
    uint64_t before_last;  // at its last

    __device__ int output_of(int tile, int half) const { // the lane's first
        const int warp = static_cast<int>(threadIdx.x) / 32;
        return tile * CUDA_BATCH_TILE + warp / 4 * 128 + half * 64 + warp % 4 * 16 +
               static_cast<int>(threadIdx.x) % 32 / 4;
    }
    __device__ float4 *part_of(int block, int is_last) const {
        const int64_t number = static_cast<int64_t>(block) * CUDA_BATCH_HELD + is_last;
        return reinterpret_cast<float4 *>(in.room.parts) + number * QUADS * THREADS + threadIdx.x;
    }
    // What results of a tile's outputs take beside their sums, before these are waited for.
    __device__ void prepare(int tile, output_ends *ends) const {
#pragma unroll
        for (int i = 0; i < HALVES * 2; ++i) {
            const int output = min(output_of(tile, i / 2) + i % 2 * 8, in.all.outputs - 1);
            ends[i] = K::prepare(in.all, output);
        }
    }
    __device__ void finish(const K &kind, int tile, int quad, const float4 &sums,
                           const output_ends *ends) {
        const int row = quad % (COUNT / 4) * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
        const float of_quad[4] = {sums.x, sums.y, sums.z, sums.w};
        const int is_second = quad / (COUNT / 4);
        const int output = output_of(tile, is_second);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int own = output + i / 2 * 8;
            const output_ends end = is_second ? ends[2 + i / 2] : ends[i / 2];
            if (row + i % 2 < in.all.rows && own < in.all.outputs) {
                kind.store(in.all, row + i % 2, own, of_quad[i], end);
            }
        }
    }
    static __device__ float4 quad_of(const float (*totals)[COUNT], int quad) {
        const float *sums = totals[quad / (COUNT / 4)] + quad % (COUNT / 4) * 4;
        return float4{sums[0], sums[1], sums[2], sums[3]};
    }
    // The tile is done as far as this block has it.
    __device__ void hand_in(const K &kind, int tile, const float (*totals)[COUNT]) {
        const bool is_last = tile * of.steps > of.begin;
        if (tile * of.steps >= of.begin && (tile + 1) * of.steps <= of.end) {
            output_ends ends[HALVES * 2];
            prepare(tile, ends);
#pragma unroll
            for (int quad = 0; quad < QUADS; ++quad) {
                finish(kind, tile, quad, quad_of(totals, quad), ends);
            }
            return;
        }
        float4 *part = part_of(static_cast<int>(blockIdx.x), is_last);
#pragma unroll
        for (int quad = 0; quad < QUADS; ++quad) {
            part[quad * THREADS] = quad_of(totals, quad);
        }
        wait_for_all();
        if (threadIdx.x == 0) {
            const uint64_t before = cuda_arrive(in.room.arrivals + tile);
            before_first = is_last ? before_first : before;
            before_last = is_last ? before : before_last;
        }
    }
    // Quads `first` and on of a tile, added up in the order of its makers. `first_part` is the
    // first maker's.
    __device__ void add_parts(const makers &by, int first, int count, float4 *sums) const {
        const float4 *part = part_of(by.first, by.is_last_of_first);
        const float4 *next = part_of(by.first + 1, 0);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            sums[i] = i < count ? __ldcg(part + (first + i) * THREADS) : float4{0, 0, 0, 0};
        }
#pragma unroll 4
        for (int maker = 1; maker < by.count; ++maker) {
            float4 more[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                more[i] = i < count ? __ldcg(next + (first + i) * THREADS) : float4{0, 0, 0, 0};
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                sums[i] = float4{sums[i].x + more[i].x, sums[i].y + more[i].y,
                                 sums[i].z + more[i].z, sums[i].w + more[i].w};
            }
            next += CUDA_BATCH_HELD * QUADS * THREADS;
        }
    }
    // This block's share of a tile that others make, too.
    __device__ void put_together(const K &kind, int tile) {
        const makers by = of.makers_of(tile);
        output_ends ends[HALVES * 2];
        if (by.count == 1) {
            return;
        }
        prepare(tile, ends);
        if (threadIdx.x == 0) {
            const uint64_t makers_of_all = static_cast<uint64_t>(by.count);
            const uint64_t arrived = tile * of.steps > of.begin ? before_last : before_first;
            cuda_await(in.room.arrivals + tile, (arrived / makers_of_all + 1) * makers_of_all);
        }
        wait_for_all();
        const int own = static_cast<int>(blockIdx.x) - by.first;
        const int end = QUADS * (own + 1) / by.count;
        for (int quad = QUADS * own / by.count; quad < end; quad += AT_ONCE) {
            float4 sums[AT_ONCE];
            add_parts(by, quad, end - quad, sums);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                if (quad + i < end) {
                    finish(kind, tile, quad + i, sums[i], ends);
                }
            }
        }
    }
};

} // namespace

#endif
