// SPDX-License-Identifier: Apache-2.0
// What blocks of many_scaled.cu and many_groups.cu bring into shared memory: tile after tile, steps
// of 128 codes of the weight and of x, by one thread, ahead of those that multiply. One of both is
// the tensor core's first operand, of which each group has 64 rows, the other its second. And how
// such kernels are started.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_STAGE_H
#define BERTH_KERNELS_CUDA_CODES_MANY_STAGE_H

#include <cuda/codes/many.h>
#include <cuda/codes/many_wgmma.h>
#include <cuda/tile.h>

namespace {

constexpr int GROUPS = 2;                   // that multiply
constexpr int THREADS = (GROUPS + 1) * 128; // the last group brings
constexpr int FIRST = CUDA_MANY_FIRST;      // rows of an operand's tile
constexpr int SECOND = CUDA_MANY_SECOND;
constexpr int OWN = FIRST / GROUPS;
constexpr int SUMS = SECOND / 2; // of a thread
constexpr int STEP = 128;        // bytes
constexpr uint32_t FIRST_BYTES = FIRST * STEP;
constexpr uint32_t STAGE_BYTES = FIRST_BYTES + SECOND * STEP;
constexpr int STAGES = 5;

struct many_call {
    cuda_coded all;
    int steps; // of the depth
    int tile_outputs;
    int tile_rows;
    int output_tiles;
    int row_tiles;

    __device__ int tiles() const {
        return output_tiles * row_tiles;
    }
};

// A tile's first output and first row.
struct many_place {
    int output;
    int row;
};

// Tiles of rows go through the weight together in bands, so that what a wave of blocks reads of x
// and of the weight is about as much: most of it comes from the second cache.
__device__ many_place place_of(const many_call &in, int tile) {
    constexpr int BAND_ROWS = 12 * 192;
    const int most = BAND_ROWS / in.tile_rows;
    const int in_band = tile % (most * in.output_tiles);
    const int band = tile / (most * in.output_tiles) * most;
    const int rows = min(most, in.row_tiles - band);
    return {in_band / rows * in.tile_outputs, (band + in_band % rows) * in.tile_rows};
}

// The operands' tiles, and which of them is x.
struct many_operands {
    const CUtensorMap *first;
    const CUtensorMap *second;
    bool is_x_first;
};

__device__ void bring(const many_call &in, const cuda_ring &ring, const many_operands &from) {
    cuda_place at = {0, 1}; // the first round waits for nobody
    for (int tile = static_cast<int>(blockIdx.x); tile < in.tiles();
         tile += static_cast<int>(gridDim.x)) {
        const many_place place = place_of(in, tile);
        for (int step = 0; step < in.steps; ++step) {
            const uint32_t stage = ring.memory + at.stage * STAGE_BYTES;
            const uint32_t full = ring.full + 8 * at.stage;
            cuda_barrier_wait(ring.empty + 8 * at.stage, at.parity);
            cuda_barrier_expect(full, STAGE_BYTES);
            cuda_tile_copy(stage, from.first, step * STEP,
                           from.is_x_first ? place.row : place.output, full);
            cuda_tile_copy(stage + FIRST_BYTES, from.second, step * STEP,
                           from.is_x_first ? place.output : place.row, full);
            at.go_on(STAGES);
        }
    }
}

// ---- groups that multiply -----------------------------------------------------------------------

// `arrivals`: that fill a stage.
__device__ cuda_ring make_ring(unsigned char *memory, uint64_t *signals, uint32_t arrivals) {
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const cuda_ring ring = {static_cast<uint32_t>(__cvta_generic_to_shared(memory)), signal,
                            signal + 8 * STAGES};
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            cuda_barrier_init(ring.full + 8 * stage, arrivals);
            cuda_barrier_init(ring.empty + 8 * stage, GROUPS * 4);
        }
        cuda_barrier_publish();
    }
    __syncthreads();
    return ring;
}

// The operands of a group's products of a step in the ring's first stage.
struct many_matrices {
    uint64_t first;
    uint64_t second;

    __device__ explicit many_matrices(const cuda_ring &ring)
        : first(cuda_matrix(ring.memory + threadIdx.x / 128 * (OWN * STEP), 16)),
          second(cuda_matrix(ring.memory + FIRST_BYTES, 16)) {
    }
    // 32 bytes of that stage's rows; where a matrix begins is said in units of 16 bytes.
    template <typename X> __device__ void multiply(int stage, int i, float *sums, int adds) const {
        const uint64_t on = static_cast<uint32_t>(stage) * (STAGE_BYTES / 16) + 2 * i;
        cuda_many_multiply<X>(sums, first + on, second + on, adds);
    }
};

// Products of so many steps, from zero. A step is released when the next one's are under way. What
// threads have copied, not tile copies, becomes visible to products behind the barrier.
template <typename X, bool IS_COPIED>
__device__ void multiply_steps(const cuda_ring &ring, const many_matrices &matrices, int steps,
                               cuda_place *at, float *sums) {
    uint32_t last = 0;
    cuda_settle<SUMS>(sums);
    for (int step = 0; step < steps; ++step) {
        cuda_barrier_wait(ring.full + 8 * at->stage, at->parity);
        if (IS_COPIED) {
            cuda_publish_shared();
        }
        cuda_group_begin();
#pragma unroll
        for (int i = 0; i < STEP / 32; ++i) {
            matrices.multiply<X>(at->stage, i, sums, i > 0 || step > 0);
        }
        cuda_group_commit();
        if (step > 0) {
            cuda_group_wait<1>();
            cuda_barrier_arrive_warp(last);
        }
        last = ring.empty + 8 * at->stage;
        at->go_on(STAGES);
    }
    cuda_group_wait<0>();
    cuda_barrier_arrive_warp(last);
    cuda_settle<SUMS>(sums);
}

// ---- the host's side ----------------------------------------------------------------------------

int tiles_of(int count, int of) {
    return static_cast<int>(gpu_ceil(count, of));
}

struct many_maps {
    CUtensorMap weight;
    CUtensorMap x;
    CUtensorMap y;
};

// Boxes of y have 128 bytes of so many rows.
bool describe(const many_call &in, int out_rows, many_maps *maps) {
    constexpr CUtensorMapDataType CODES = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    constexpr CUtensorMapDataType NUMBERS = CU_TENSOR_MAP_DATA_TYPE_UINT16;
    constexpr CUtensorMapSwizzle ORDER = CU_TENSOR_MAP_SWIZZLE_128B;
    const cuda_coded &all = in.all;
    const int64_t y_bytes = int64_t{all.outputs} * 2;
    return cuda_describe_boxes(
               {all.weight, all.outputs, all.bytes, all.bytes, in.tile_outputs, STEP, CODES, ORDER},
               &maps->weight) &&
           cuda_describe_boxes(
               {all.x, all.rows, all.bytes, all.x_gap, in.tile_rows, STEP, CODES, ORDER},
               &maps->x) &&
           cuda_describe_boxes(
               {all.y, all.rows, y_bytes, all.y_gap * 2, out_rows, OWN, NUMBERS, ORDER}, &maps->y);
}

many_call call_of(const cuda_coded &all, int tile_outputs, int tile_rows) {
    return {all,       tiles_of(all.bytes, STEP),           tile_outputs,
            tile_rows, tiles_of(all.outputs, tile_outputs), tiles_of(all.rows, tile_rows)};
}

struct many_room {
    int out_rows; // of a box of y
    uint32_t shared;
};

template <typename K>
berth_status start(const gpu_op *op, K *kernel, const many_call &call, const many_room &room) {
    many_maps maps;
    if (!describe(call, room.out_rows, &maps)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                 "the driver does not describe a product's tiles");
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(op->gpu->multiprocessors[op->device])),
                           dim3(THREADS), room.shared};
    return gpu_run(op, "a product of many rows of codes", grid, kernel, call, maps.weight, maps.x,
                   maps.y);
}

} // namespace

#endif
