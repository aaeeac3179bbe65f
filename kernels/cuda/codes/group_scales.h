// SPDX-License-Identifier: Apache-2.0
// Scales of groups on their way to shared memory, beside the codes of a step, of which a group
// has whole ones: those of a tile's rows and of its parts, outputs that share one. By a
// warp of their own.
#ifndef BERTH_KERNELS_CUDA_CODES_GROUP_SCALES_H
#define BERTH_KERNELS_CUDA_CODES_GROUP_SCALES_H

#include <cuda/bulk.h>
#include <cuda/codes/groups.h>

// Of a step.
template <int ROWS, int PARTS> struct cuda_step_scales {
    float rows[ROWS];
    float parts[PARTS];
};

// What a lane brings.
template <int ROWS, int PARTS> struct cuda_lane_scales {
    static_assert(ROWS % 32 == 0 && PARTS <= 32);
    const cuda_groups &groups;
    int its[ROWS / 32];
    int64_t block;
    float rows[ROWS / 32];
    float part;

    // `begin`: of the scales of part lane % PARTS.
    __device__ cuda_lane_scales(const cuda_groups &all, int64_t begin) : groups(all), block(begin) {
    }
    // x_row(row): which row of x is that of the tile.
    template <typename F> __device__ void choose(F x_row) {
#pragma unroll
        for (int i = 0; i < ROWS / 32; ++i) {
            its[i] = x_row(static_cast<int>(threadIdx.x) % 32 + i * 32);
        }
    }
    __device__ void load(int step) {
        const int group = groups.of_step(step);
#pragma unroll
        for (int i = 0; i < ROWS / 32; ++i) {
            rows[i] = groups.of_x(its[i], group);
        }
        part = groups.of_weight(block, group);
    }
    __device__ void store(cuda_step_scales<ROWS, PARTS> *to) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int i = 0; i < ROWS / 32; ++i) {
            to->rows[lane + i * 32] = rows[i];
        }
        if (lane < PARTS) {
            to->parts[lane] = part;
        }
    }
};

// Where they go: a ring's stages, which are full behind one arrival more.
template <int ROWS, int PARTS> struct cuda_scales_room {
    cuda_ring ring;
    int stages;
    cuda_step_scales<ROWS, PARTS> *at;
};

// Those of steps `begin` to `end`. A step's are loaded before there is room for those of the one
// before.
template <int ROWS, int PARTS>
static __device__ inline void cuda_bring_scales(cuda_lane_scales<ROWS, PARTS> next, int begin,
                                                int end, const cuda_scales_room<ROWS, PARTS> &room,
                                                cuda_place *place) {
    cuda_place at = *place;
    next.load(begin);
    for (int step = begin; step < end; ++step) {
        const cuda_lane_scales<ROWS, PARTS> now = next;
        next.load(min(step + 1, end - 1));
        cuda_barrier_wait(room.ring.empty + 8 * at.stage, at.parity);
        now.store(room.at + at.stage);
        __syncwarp();
        cuda_barrier_arrive_warp(room.ring.full + 8 * at.stage);
        at.go_on(room.stages);
    }
    *place = at;
}

#endif
