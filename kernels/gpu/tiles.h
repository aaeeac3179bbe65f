// SPDX-License-Identifier: Apache-2.0
// A tile of a product of two matrices of rows on a GPU: 64 rows by 64 outputs by 256 threads, both
// operands in shared memory as floats, one sum an output in f32.
#ifndef BERTH_KERNELS_GPU_TILES_H
#define BERTH_KERNELS_GPU_TILES_H

#include "launch.h"

#define GPU_TILE            64  // rows and outputs
#define GPU_TILE_DEPTH      16  // of a slice in shared memory
#define GPU_TILE_PER_THREAD 4   // rows and outputs of a thread
#define GPU_TILE_THREADS    256 // 16 by 16

struct gpu_tile_room {
    float rows[GPU_TILE_DEPTH][GPU_TILE + 4];
    float outputs[GPU_TILE_DEPTH][GPU_TILE + 4];
};

// Slice k of 64 rows, transposed; zero beyond `depth`. `at(line, column)` gives an element, zero
// for a line that is not there.
template <typename F>
static __device__ inline void gpu_tile_load(float (*to)[GPU_TILE + 4], int depth, int k, F at) {
    for (int i = threadIdx.x; i < GPU_TILE * GPU_TILE_DEPTH; i += GPU_TILE_THREADS) {
        const int line = i / GPU_TILE_DEPTH;
        const int column = i % GPU_TILE_DEPTH;
        to[column][line] = k + column < depth ? at(line, k + column) : 0.0f;
    }
}

// One step of the depth: every row of a thread by every output of it.
static __device__ inline void gpu_tile_step(const float *rows, const float *outputs,
                                            float (*sums)[GPU_TILE_PER_THREAD]) {
#pragma unroll
    for (int i = 0; i < GPU_TILE_PER_THREAD; ++i) {
#pragma unroll
        for (int j = 0; j < GPU_TILE_PER_THREAD; ++j) {
            sums[i][j] += rows[i] * outputs[j];
        }
    }
}

// Slice k of the depth, which ends at `end`, added to a thread's sums; `row_at` and `output_at` as
// above.
template <typename R, typename O>
static __device__ inline void gpu_tile_slice(int end, int k, gpu_tile_room *room, R row_at,
                                             O output_at, float (*sums)[GPU_TILE_PER_THREAD]) {
    const int across = threadIdx.x % 16 * GPU_TILE_PER_THREAD;
    const int down = threadIdx.x / 16 * GPU_TILE_PER_THREAD;
    gpu_tile_load(room->rows, end, k, row_at);
    gpu_tile_load(room->outputs, end, k, output_at);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < GPU_TILE_DEPTH; ++d) {
        gpu_tile_step(room->rows[d] + down, room->outputs[d] + across, sums);
    }
    __syncthreads();
}

// The whole depth: `store(row, output, sum)` gets every element of the tile.
template <typename R, typename O, typename S>
static __device__ inline void gpu_tile_product(int depth, gpu_tile_room *room, R row_at,
                                               O output_at, S store) {
    const int across = threadIdx.x % 16 * GPU_TILE_PER_THREAD;
    const int down = threadIdx.x / 16 * GPU_TILE_PER_THREAD;
    float sums[GPU_TILE_PER_THREAD][GPU_TILE_PER_THREAD] = {};
    for (int k = 0; k < depth; k += GPU_TILE_DEPTH) {
        gpu_tile_slice(depth, k, room, row_at, output_at, sums);
    }
#pragma unroll
    for (int i = 0; i < GPU_TILE_PER_THREAD; ++i) {
#pragma unroll
        for (int j = 0; j < GPU_TILE_PER_THREAD; ++j) {
            store(down + i, across + j, sums[i][j]);
        }
    }
}

#endif
