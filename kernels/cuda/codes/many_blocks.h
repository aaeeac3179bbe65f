// SPDX-License-Identifier: Apache-2.0
// Products of many rows of e4m3 whose steps have scales, of groups that multiply: many_groups.cu
// and experts_blocks.cu. Tiles have 128 rows and 192 outputs. Rows are the tensor core's first
// operand, so that a thread, which adds every step's sums up in f32, has two rows' scales to
// multiply with and not those of 48.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_BLOCKS_H
#define BERTH_KERNELS_CUDA_CODES_MANY_BLOCKS_H

#include <cuda/codes/group_scales.h>
#include <cuda/codes/many_send.h>
#include <cuda/mma.h>
#include <cuda/pieces.h>
#include <cuda/shared.h>

namespace {

constexpr int ROWS = FIRST;
constexpr int TILE = SECOND;
constexpr int PART = CUDA_GROUP_PART; // outputs: of one block, and written out together
constexpr int PARTS = TILE / PART;
constexpr uint32_t OUT_BYTES = OWN * PART * 2; // of a group
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + GROUPS * OUT_BYTES;
// As many as kernels start with.
constexpr int BRINGING_REGISTERS = 56;
constexpr int MULTIPLYING_REGISTERS = 224;

typedef cuda_step_scales<ROWS, PARTS> step_scales;

// Of a thread's sums four are eight outputs on: outputs 2c and 2c + 1 of rows g and g + 8 of its
// warp's 16, g = lane / 4 and c = lane % 4. So a step's scales of a thread:
struct own_scales {
    float at[2][PARTS];

    __device__ explicit own_scales(const step_scales &step) {
        const int row = static_cast<int>(threadIdx.x) / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                at[i][part] = step.rows[row + 8 * i] * step.parts[part];
            }
        }
    }
    __device__ void add(const float *sums, float *totals) const {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            totals[i] += sums[i] * at[i / 2 % 2][i / (SUMS / PARTS)];
        }
    }
};

// The groups take turns: one begins its products when the other's last of a step are under way, so
// that there are some while one adds up. Turn 0 is the first group's.
template <bool HAS = CUDA_HAS_WGMMA> __device__ void wait_for_turn(uint32_t group) {
    if constexpr (HAS) {
        asm volatile("bar.sync %0, 256;" ::"r"(3 + group) : "memory");
    }
}
template <bool HAS = CUDA_HAS_WGMMA> __device__ void give_turn(uint32_t group) {
    if constexpr (HAS) {
        asm volatile("bar.arrive %0, 256;" ::"r"(3 + group) : "memory");
    }
}

__device__ void multiply_step(const many_matrices &matrices, int stage, float *sums) {
    constexpr int LAST = STEP / 32 - 1;
    cuda_group_begin();
#pragma unroll
    for (int i = 0; i < LAST; ++i) {
        matrices.multiply(stage, i, sums, i > 0);
    }
    cuda_group_commit();
    matrices.multiply(stage, LAST, sums, 1);
    cuda_group_commit();
}

// A tile's products. Steps that threads have copied, not tile copies, become visible to products
// behind the barrier.
template <bool IS_COPIED>
__device__ void multiply(const cuda_ring &ring, const step_scales *scales, int steps,
                         cuda_place *place, float *totals) {
    const uint32_t group = threadIdx.x / 128;
    const many_matrices matrices(ring);
    cuda_place at = *place;
    for (int step = 0; step < steps; ++step) {
        float sums[SUMS];
        cuda_settle<SUMS>(sums);
        cuda_barrier_wait(ring.full + 8 * at.stage, at.parity);
        if (IS_COPIED) {
            cuda_publish_shared();
        }
        wait_for_turn(group);
        multiply_step(matrices, at.stage, sums);
        const own_scales own(scales[at.stage]);
        cuda_group_wait<1>();
        give_turn(group ^ 1);
        cuda_group_wait<0>();
        cuda_barrier_arrive_warp(ring.empty + 8 * at.stage);
        cuda_settle<SUMS>(sums);
        own.add(sums, totals);
        at.go_on(STAGES);
    }
    *place = at;
}

// What sums of two neighbouring outputs are multiplied with, and what is added to them.
struct two_ends {
    float2 scales;
    float2 more;
};

// A part of the sums as rows of 128 bytes whose pieces are exchanged by the row's number.
// ends(output): of it and its neighbour.
template <typename T, typename E>
__device__ void lay_out(const E &ends, int first, const float *sums, uint32_t out) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int eight = 0; eight < PART / 8; eight += 2) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const two_ends of = ends(first + (eight + i) * 8 + lane % 4 * 2);
            const float *own = sums + 4 * (eight + i);
            pairs[2 * i] =
                cuda_pair(own[0] * of.scales.x + of.more.x, own[1] * of.scales.y + of.more.y, T{});
            pairs[2 * i + 1] =
                cuda_pair(own[2] * of.scales.x + of.more.x, own[3] * of.scales.y + of.more.y, T{});
        }
        cuda_store_matrices(out + cuda_panel_place(row, eight + lane / 16), pairs, pairs + 2);
    }
}

} // namespace

#endif
