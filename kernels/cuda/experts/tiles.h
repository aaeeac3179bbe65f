// SPDX-License-Identifier: Apache-2.0
// Experts' products of many rows by the tensor cores of groups of warps: blocks.cu has codes,
// numbers.cu 16 bits. Blocks, one a multiprocessor, go through tiles of 128 rows of one expert by
// 192 of its outputs. Rows lie anywhere in x, so two warps copy them, 16 bytes at a time; one
// thread brings weights. Tiles of the same weights are neighbours. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_EXPERTS_TILES_H
#define BERTH_KERNELS_CUDA_EXPERTS_TILES_H

#include <cuda/codes/many_rows.h>
#include <cuda/experts/numbers.h>

namespace {

constexpr int PIECES = STEP / 16; // of a row
constexpr int COPYING = 64;       // threads
constexpr int ROWS_EACH = ROWS * PIECES / COPYING;

struct experts_call {
    gpu_ordered ordered;
    int experts;
    const char *x; // rows x_gap bytes apart, aligned to 16
    int64_t x_gap;
    int rows_per_x;
    void *y; // [choices, outputs]
    int outputs;
    int bytes; // of a row of x and of the weight
    int steps; // of the depth
    int output_tiles;
};

// ---- tiles --------------------------------------------------------------------------------------

// Where each expert's tiles of rows begin, and behind the last one's how many there are. By a warp.
__device__ void count_tiles(const experts_call &in, int32_t *begins) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int begun = 0;
    for (int first = 0; first < in.experts; first += 32) {
        const int expert = min(first + lane, in.experts - 1);
        const int rows = in.ordered.first[expert + 1] - in.ordered.first[expert];
        const int own = first + lane < in.experts ? (rows + ROWS - 1) / ROWS : 0;
        int behind = own;
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
            const int before = __shfl_up_sync(~0u, behind, i);
            behind += lane >= i ? before : 0;
        }
        if (first + lane < in.experts) {
            begins[first + lane] = begun + behind - own;
        }
        begun += __shfl_sync(~0u, behind, 31);
    }
    if (lane == 0) {
        begins[in.experts] = begun;
    }
}

struct expert_tile {
    int expert;
    int rows;   // that are there
    int first;  // of the ordered rows
    int output; // the first

    __device__ expert_tile(const experts_call &in, const int32_t *begins, int tile)
        : expert(gpu_expert_of_tile(begins, in.experts, tile / in.output_tiles)) {
        const int in_expert = tile - begins[expert] * in.output_tiles;
        const int down = begins[expert + 1] - begins[expert];
        first = in.ordered.first[expert] + in_expert % down * ROWS;
        rows = min(in.ordered.first[expert + 1] - first, ROWS);
        output = in_expert / down * TILE;
    }
    // The choice of a row that is there.
    __device__ int choice(const experts_call &in, int row) const {
        return in.ordered.order ? in.ordered.order[first + row] : first + row;
    }
    // The row of x of a row; behind the last the last.
    __device__ int x_row(const experts_call &in, int row) const {
        return choice(in, min(row, rows - 1)) / in.rows_per_x;
    }
};

// The block's tiles, one behind another: call(tile).
template <typename F>
__device__ void for_each_tile(const experts_call &in, const int32_t *begins, F call) {
    const int count = begins[in.experts] * in.output_tiles;
    for (int tile = static_cast<int>(blockIdx.x); tile < count;
         tile += static_cast<int>(gridDim.x)) {
        call(expert_tile(in, begins, tile));
    }
}

// ---- bringing -----------------------------------------------------------------------------------

__device__ void bring_weights(const experts_call &in, const cuda_ring &ring, const int32_t *begins,
                              const CUtensorMap *weight) {
    cuda_place at = {0, 1};
    for_each_tile(in, begins, [&](const expert_tile &tile) {
        const int row = tile.expert * in.outputs + tile.output;
        for (int step = 0; step < in.steps; ++step) {
            const uint32_t full = ring.full + 8 * at.stage;
            cuda_barrier_wait(ring.empty + 8 * at.stage, at.parity);
            cuda_barrier_expect(full, STAGE_BYTES - FIRST_BYTES);
            cuda_tile_copy(ring.memory + at.stage * STAGE_BYTES + FIRST_BYTES, weight, step * STEP,
                           row, full);
            at.go_on(STAGES);
        }
    });
}

// A thread has the same piece of every eighth row. Why pointers that go on, and not a row's number
// times the gap: the sixteen products of a step took longer than all that multiplies.
__device__ void bring_rows(const experts_call &in, const cuda_ring &ring, const int32_t *begins) {
    const int own = static_cast<int>(threadIdx.x) % COPYING;
    const int piece = own % PIECES;
    cuda_place at = {0, 1};
    for_each_tile(in, begins, [&](const expert_tile &tile) {
        const char *from[ROWS_EACH];
#pragma unroll
        for (int i = 0; i < ROWS_EACH; ++i) {
            const int row = tile.x_row(in, own / PIECES + i * (COPYING / PIECES));
            from[i] = in.x + row * in.x_gap + piece * 16;
        }
        for (int step = 0; step < in.steps; ++step) {
            const uint32_t to = ring.memory + at.stage * STAGE_BYTES;
            const bool is_there = step * STEP + piece * 16 < in.bytes;
            cuda_barrier_wait(ring.empty + 8 * at.stage, at.parity);
#pragma unroll
            for (int i = 0; i < ROWS_EACH; ++i) {
                const int row = own / PIECES + i * (COPYING / PIECES);
                cuda_copy_16(to + cuda_panel_place(row, piece), from[i], is_there);
                from[i] += STEP;
            }
            cuda_barrier_arrive_copied(ring.full + 8 * at.stage);
            at.go_on(STAGES);
        }
    });
}

// ---- results ------------------------------------------------------------------------------------

// From a group's room to y, whose rows lie anywhere.
template <typename T>
__device__ void write_out(const experts_call &in, const expert_tile &tile, int output,
                          uint32_t from) {
    const int piece = static_cast<int>(threadIdx.x) % PIECES;
#pragma unroll
    for (int i = 0; i < OWN * PIECES / 128; ++i) {
        const int row = static_cast<int>(threadIdx.x) % 128 / PIECES + i * (128 / PIECES);
        const int in_tile = static_cast<int>(threadIdx.x) / 128 * OWN + row;
        if (in_tile < tile.rows && output + piece * 8 < in.outputs) {
            T *to =
                static_cast<T *>(in.y) + tile.choice(in, in_tile) * int64_t{in.outputs} + output;
            *reinterpret_cast<uint4 *>(to + piece * 8) =
                cuda_load_shared(from + cuda_panel_place(row, piece));
        }
    }
}

// By a group, whose room is `out`.
template <typename T>
__device__ void finish(const experts_call &in, const expert_tile &tile, const float2 *ends,
                       const float *totals, uint32_t out) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        group_sync(); // who still reads has the part before
        lay_out<T>(ends + part * PART, totals + part * (SUMS / PARTS), out);
        group_sync();
        write_out<T>(in, tile, tile.output + part * PART, out);
    }
}

// ---- a block ------------------------------------------------------------------------------------

struct experts_room {
    uint64_t signals[2 * STAGES];
    __align__(16) float2 ends[GROUPS][TILE];
    int32_t begins[CUDA_MOST_EXPERTS + 1];
};

struct experts_block {
    cuda_ring ring;
    const int32_t *begins;
    float2 *ends; // of the group
    int warp;     // of those that bring; below 0: it multiplies

    __device__ uint32_t out() const {
        return ring.memory + STAGES * STAGE_BYTES + threadIdx.x / 128 * OUT_BYTES;
    }
};

// `more`: arrivals that fill a stage, but those of rows and weights.
__device__ experts_block begin_block(const experts_call &in, unsigned char *memory,
                                     experts_room *room, uint32_t more) {
    experts_block block;
    block.begins = room->begins;
    block.ends = room->ends[threadIdx.x / 128 % GROUPS];
    block.warp = static_cast<int>(threadIdx.x) / 32 - GROUPS * 4;
    gpu_wait_for_inputs();
    if (block.warp == 0) {
        count_tiles(in, room->begins);
    }
    block.ring = make_ring(memory, room->signals, 1 + COPYING + more);
    return block;
}

// Weights and rows. One of the warps is free.
__device__ void bring_tiles(const experts_call &in, const experts_block &block,
                            const CUtensorMap *weight) {
    if (threadIdx.x == GROUPS * 128) {
        bring_weights(in, block.ring, block.begins, weight);
    } else if (block.warp > 1) {
        bring_rows(in, block.ring, block.begins);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

bool describe_experts(const experts_call &in, const void *weight, CUtensorMap *map) {
    return cuda_describe_boxes({weight, int64_t{in.experts} * in.outputs, in.bytes, in.bytes, TILE,
                                STEP, CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_128B},
                               map);
}

template <typename K, typename... A>
berth_status start_experts(const gpu_op *op, K *kernel, const experts_call &in, const void *weight,
                           A... more) {
    CUtensorMap map;
    if (!describe_experts(in, weight, &map)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                 "the driver does not describe experts' tiles");
    }
    const berth_status has_room = cuda_allow_shared(op, kernel, SHARED_BYTES);
    const gpu_grid grid = {dim3(static_cast<unsigned>(op->gpu->multiprocessors[op->device])),
                           dim3(THREADS), SHARED_BYTES};
    return has_room == BERTH_OK
               ? gpu_run(op, "experts of many rows", grid, kernel, in, map, more...)
               : has_room;
}

} // namespace

#endif
