// SPDX-License-Identifier: Apache-2.0
// What a block of many_scaled.cu brings into shared memory: tile after tile, steps of 128 codes of
// the weight and of x, by one thread, ahead of those that multiply.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_STAGE_H
#define BERTH_KERNELS_CUDA_CODES_MANY_STAGE_H

#include <cuda/codes/many.h>
#include <cuda/tile.h>

namespace {

constexpr int GROUPS = 2;                   // that multiply
constexpr int THREADS = (GROUPS + 1) * 128; // the last group brings
constexpr int ROWS = CUDA_MANY_ROWS;
constexpr int TILE = CUDA_MANY_TILE;
constexpr int OWN = TILE / GROUPS; // outputs of a group
constexpr int STEP = 128;          // codes
constexpr uint32_t WEIGHT_BYTES = TILE * STEP;
constexpr uint32_t STAGE_BYTES = WEIGHT_BYTES + ROWS * STEP;
constexpr int STAGES = 5;
// Tiles of rows that go through the weight together, so that what a wave of blocks reads of x and
// of the weight is about as much: most of it comes from the second cache.
constexpr int BAND = 12;

struct many_call {
    cuda_coded all;
    int steps; // of the depth
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

__device__ many_place place_of(const many_call &in, int tile) {
    const int in_band = tile % (BAND * in.output_tiles);
    const int band = tile / (BAND * in.output_tiles) * BAND;
    const int rows = min(BAND, in.row_tiles - band);
    return {in_band / rows * TILE, (band + in_band % rows) * ROWS};
}

__device__ void bring(const many_call &in, const cuda_ring &ring, const CUtensorMap *weight,
                      const CUtensorMap *x) {
    cuda_place at = {0, 1}; // the first round waits for nobody
    for (int tile = static_cast<int>(blockIdx.x); tile < in.tiles();
         tile += static_cast<int>(gridDim.x)) {
        const many_place place = place_of(in, tile);
        for (int step = 0; step < in.steps; ++step) {
            const uint32_t stage = ring.memory + at.stage * STAGE_BYTES;
            const uint32_t full = ring.full + 8 * at.stage;
            cuda_barrier_wait(ring.empty + 8 * at.stage, at.parity);
            cuda_barrier_expect(full, STAGE_BYTES);
            cuda_tile_copy(stage, weight, step * STEP, place.output, full);
            cuda_tile_copy(stage + WEIGHT_BYTES, x, step * STEP, place.row, full);
            at.go_on(STAGES);
        }
    }
}

} // namespace

#endif
