// SPDX-License-Identifier: Apache-2.0
// Products of e4m3 whose steps have scales, of groups that multiply: many_groups.cu and
// experts/blocks.cu. Rows are the tensor core's first operand, so that a thread, which adds every
// step's sums up in f32, has two rows' scales to multiply with and not those of 48.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_BLOCKS_H
#define BERTH_KERNELS_CUDA_CODES_MANY_BLOCKS_H

#include <cuda/codes/group_scales.h>
#include <cuda/codes/many_rows.h>

namespace {

static_assert(PART == CUDA_GROUP_PART && STEP == CUDA_GROUP_STEP);
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
        matrices.multiply<gpu_f8>(stage, i, sums, i > 0);
    }
    cuda_group_commit();
    matrices.multiply<gpu_f8>(stage, LAST, sums, 1);
    cuda_group_commit();
}

// A tile's products. What threads have copied, not tile copies, becomes visible to products behind
// the barrier.
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

} // namespace

#endif
