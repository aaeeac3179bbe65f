// SPDX-License-Identifier: Apache-2.0
// Products of many rows with experts' matrices of codes on a GPU: tiles of the rows of one expert.
#ifndef BERTH_KERNELS_GPU_CODES_TILES_H
#define BERTH_KERNELS_GPU_CODES_TILES_H

#include "codes_product.h"

// A tile of an expert's rows by one of its outputs.
struct gpu_codes_tile {
    int expert;
    int rows;           // that are there
    const int32_t *its; // the choices
    int first_output;
};

// The thread's rows and outputs that are there: call(i, j, place).
template <typename F>
static __device__ inline void gpu_codes_for_mine(const gpu_codes_product &all,
                                                 const gpu_codes_tile &tile, F call) {
    const int row = threadIdx.x / 16 * GPU_TILE_PER_THREAD;
    const int output = tile.first_output + threadIdx.x % 16 * GPU_TILE_PER_THREAD;
#pragma unroll
    for (int i = 0; i < GPU_TILE_PER_THREAD; ++i) {
#pragma unroll
        for (int j = 0; j < GPU_TILE_PER_THREAD; ++j) {
            if (row + i < tile.rows && output + j < all.outputs) {
                call(i, j, gpu_codes_place{tile.expert, tile.its[row + i], output + j});
            }
        }
    }
}

// Sums of products of numbers of a group, whose columns are [k, end). Slices are summed apart, so
// that those of i8 stay exact.
template <typename X, typename S>
static __device__ inline void
gpu_codes_group_product(const gpu_codes_product &all, const gpu_codes_tile &tile,
                        gpu_tile_room *room, int k, int end, S (*sums)[GPU_TILE_PER_THREAD]) {
    for (; k < end; k += GPU_TILE_DEPTH) {
        float slice[GPU_TILE_PER_THREAD][GPU_TILE_PER_THREAD] = {};
        gpu_tile_slice(
            end, k, room,
            [&](int row, int at) {
                return row < tile.rows ? X::number(gpu_row<const typename X::element>(
                                             all.x, tile.its[row] / all.rows_per_x)[at])
                                       : 0.0f;
            },
            [&](int output, int at) {
                return tile.first_output + output < all.outputs
                           ? gpu_codes_at(all, tile.expert, tile.first_output + output, at)
                           : 0.0f;
            },
            slice);
#pragma unroll
        for (int i = 0; i < GPU_TILE_PER_THREAD * GPU_TILE_PER_THREAD; ++i) {
            sums[i / GPU_TILE_PER_THREAD][i % GPU_TILE_PER_THREAD] +=
                static_cast<S>(slice[i / GPU_TILE_PER_THREAD][i % GPU_TILE_PER_THREAD]);
        }
    }
}

template <typename T, typename X>
static __device__ inline void gpu_codes_whole(const gpu_codes_product &all,
                                              const gpu_codes_tile &tile, gpu_tile_room *room) {
    typename X::sum sums[GPU_TILE_PER_THREAD][GPU_TILE_PER_THREAD] = {};
    gpu_codes_group_product<X>(all, tile, room, 0, all.depth, sums);
    gpu_codes_for_mine(all, tile, [&](int i, int j, const gpu_codes_place &at) {
        gpu_codes_store<T>(all, at, sums[i][j], false);
    });
}

template <typename T, typename X>
static __device__ inline void gpu_codes_grouped(const gpu_codes_product &all,
                                                const gpu_codes_tile &tile, gpu_tile_room *room) {
    const int columns = static_cast<int>(all.scales.columns);
    float totals[GPU_TILE_PER_THREAD][GPU_TILE_PER_THREAD] = {};
    for (int group = 0; group < static_cast<int>(all.scales.across); ++group) {
        const int first = group * columns;
        const int end = all.depth - first < columns ? all.depth : first + columns;
        float sums[GPU_TILE_PER_THREAD][GPU_TILE_PER_THREAD] = {};
        gpu_codes_group_product<X>(all, tile, room, first, end, sums);
        gpu_codes_for_mine(all, tile, [&](int i, int j, const gpu_codes_place &at) {
            totals[i][j] += sums[i][j] * gpu_codes_x_scale(all, at.p / all.rows_per_x, group) *
                            gpu_codes_weight_scale(all, at.expert, at.output, group);
        });
    }
    gpu_codes_for_mine(all, tile, [&](int i, int j, const gpu_codes_place &at) {
        gpu_codes_store<T>(all, at, totals[i][j], true);
    });
}

// Which of the rows and outputs a block has; false: none. blockIdx.x: which `outputs` of them;
// blockIdx.y: the tile of rows, of which there may be fewer than blocks.
static __device__ inline bool gpu_codes_find_tile(const gpu_ordered &ordered, int experts,
                                                  int outputs, gpu_codes_tile *out) {
    const int number = static_cast<int>(blockIdx.y);
    if (number >= ordered.tiles[experts]) {
        return false;
    }
    const int expert = gpu_expert_of_tile(ordered.tiles, experts, number);
    const int first = ordered.first[expert] + (number - ordered.tiles[expert]) * GPU_TILE;
    *out = gpu_codes_tile{expert, ordered.first[expert + 1] - first, ordered.order + first,
                          static_cast<int>(blockIdx.x) * outputs};
    return true;
}

template <typename T, typename X>
static __global__ void gpu_codes_tiles_kernel(gpu_ordered ordered, int experts,
                                              gpu_codes_product all) {
    __shared__ gpu_tile_room room;
    gpu_codes_tile tile;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (!gpu_codes_find_tile(ordered, experts, GPU_TILE, &tile)) {
        return; // the whole block
    }
    if (all.scales.across > 1) {
        gpu_codes_grouped<T, X>(all, tile, &room);
    } else {
        gpu_codes_whole<T, X>(all, tile, &room);
    }
}

#endif
