// SPDX-License-Identifier: Apache-2.0
// Products of experts' rows with matrices of codes on a GPU, of every code and group. Numbers of
// either side become floats on their way; what they are summed in is exact for i8. Few rows: a warp
// an output of every row. Many: tiles of the rows of one expert.
#ifndef BERTH_KERNELS_GPU_CODES_PRODUCT_H
#define BERTH_KERNELS_GPU_CODES_PRODUCT_H

#include "codes.h"
#include "experts.h"

#define GPU_CODES_WIDE 16 // codes that a lane takes at once

// y[p] = weight[expert of p] · x[p / rows_per_x] + bias[expert of p], rounded.
struct gpu_codes_product {
    berth_code code;
    const uint8_t *weight;  // [experts, outputs, depth], as codes lie
    gpu_code_scales scales; // [experts, down, scales.across]
    int64_t down;
    const uint8_t *zeros; // like the scales; NULL: the zero point of the code
    const void *bias;     // [experts, outputs], NULL: none
    berth_dtype bias_dtype;
    gpu_rows x;
    int rows_per_x;
    const float *x_scales; // NULL: x has no codes
    int64_t x_scale_gap;   // from row to row, 0: one for all
    int64_t x_scale_step;  // from group to group, 0: one a row
    void *y;               // [rows, outputs]
    int outputs;
    int depth;
};

// What x has: floats, or codes of either type; and what its products are summed in.
template <typename T> struct gpu_codes_x_floats {
    using element = T;
    using sum = float;
    static __device__ float number(T value) {
        return gpu_float(value);
    }
};
struct gpu_codes_x_i8 {
    using element = uint8_t;
    using sum = int32_t;
    static __device__ float number(uint8_t code) {
        return static_cast<float>(static_cast<int8_t>(code));
    }
};
struct gpu_codes_x_e4m3 {
    using element = uint8_t;
    using sum = float;
    static __device__ float number(uint8_t code) {
        return gpu_from_f8_bits(code);
    }
};

// ---- weights ------------------------------------------------------------------------------------

static __device__ inline bool gpu_code_is_half(berth_code code) {
    return code == BERTH_CODE_U4 || code == BERTH_CODE_E2M1;
}

// The codes of an output of an expert.
static __device__ inline const uint8_t *gpu_codes_row(const gpu_codes_product &all, int expert,
                                                      int output) {
    const int64_t row = static_cast<int64_t>(expert) * all.outputs + output;
    return all.weight + row * (gpu_code_is_half(all.code) ? all.depth / 2 : all.depth);
}

// Which scale and zero point are meant.
static __device__ inline int64_t gpu_codes_group(const gpu_codes_product &all, int expert,
                                                 int output, int group) {
    const int64_t row = expert * all.down + output / static_cast<int>(all.scales.rows);
    return row * all.scales.across + group;
}

static __device__ inline float gpu_codes_zero(const gpu_codes_product &all, int64_t group) {
    return all.zeros                   ? static_cast<float>(all.zeros[group])
           : all.code == BERTH_CODE_U4 ? 8.0f
           : all.code == BERTH_CODE_U8 ? 128.0f
                                       : 0.0f;
}

// Element k of an output's row, not scaled.
static __device__ inline float gpu_codes_at(const gpu_codes_product &all, int expert, int output,
                                            int k) {
    const uint8_t *row = gpu_codes_row(all, expert, output);
    const uint32_t bits = gpu_code_is_half(all.code) ? row[k / 2] >> (k % 2 * 4) & 15u : row[k];
    const int group = k / static_cast<int>(all.scales.columns);
    return gpu_code_value(all.code, bits) -
           gpu_codes_zero(all, gpu_codes_group(all, expert, output, group));
}

template <int N, typename F>
static __device__ inline void gpu_codes_each(const uint8_t *bytes, float *out, F value) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
        out[j] = value(bytes[j]);
    }
}

// N elements of a row from k on, which are of one group, not scaled. The code is asked for once.
template <int N>
static __device__ inline void gpu_codes_load(berth_code code, const uint8_t *row, int k, float zero,
                                             float *out) {
    gpu_pack<uint8_t, N> bytes;
    if (gpu_code_is_half(code)) {
        const gpu_pack<uint8_t, N / 2> halves = gpu_load<uint8_t, N / 2>(row, k / 2);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            bytes.at[j] = static_cast<uint8_t>(halves.at[j / 2] >> (j % 2 * 4) & 15u);
        }
    } else {
        bytes = gpu_load<uint8_t, N>(row, k);
    }
    if (code == BERTH_CODE_E4M3) {
        gpu_codes_each<N>(bytes.at, out, [](uint8_t b) { return gpu_from_f8_bits(b); });
    } else if (code == BERTH_CODE_E2M1) {
        gpu_codes_each<N>(bytes.at, out, [](uint8_t b) { return gpu_from_e2m1_bits(b); });
    } else if (code == BERTH_CODE_I8) {
        gpu_codes_each<N>(bytes.at, out, gpu_codes_x_i8::number);
    } else {
        gpu_codes_each<N>(bytes.at, out,
                          [zero](uint8_t b) { return static_cast<float>(b) - zero; });
    }
}

// ---- scales and the end -------------------------------------------------------------------------

// What a group's sum is multiplied by.
static __device__ inline float gpu_codes_weight_scale(const gpu_codes_product &all, int expert,
                                                      int output, int group) {
    return gpu_load_any(all.scales.data, all.scales.dtype,
                        gpu_codes_group(all, expert, output, group));
}
static __device__ inline float gpu_codes_x_scale(const gpu_codes_product &all, int64_t row,
                                                 int group) {
    return all.x_scales ? all.x_scales[row * all.x_scale_gap + group * all.x_scale_step] : 1.0f;
}

// An output of a choice.
struct gpu_codes_place {
    int expert;
    int64_t p;
    int output;
};

// `sum`: groups that are scaled already, or without groups the sum of products of numbers. Rounded
// once: an activation's code may depend on the last bit.
template <typename T, typename S>
static __device__ inline void gpu_codes_store(const gpu_codes_product &all,
                                              const gpu_codes_place &at, S sum, bool is_scaled) {
    double value = sum;
    if (!is_scaled) {
        value = value * gpu_codes_x_scale(all, at.p / all.rows_per_x, 0) *
                gpu_codes_weight_scale(all, at.expert, at.output, 0);
    }
    const int64_t row = static_cast<int64_t>(at.expert) * all.outputs;
    value += all.bias ? gpu_load_any(all.bias, all.bias_dtype, row + at.output) : 0.0f;
    static_cast<T *>(all.y)[at.p * all.outputs + at.output] =
        gpu_round<T>(static_cast<float>(value));
}

// ---- few rows -----------------------------------------------------------------------------------

static __device__ inline int32_t gpu_codes_warp_sum(int32_t value) {
    for (int mask = 16; mask > 0; mask /= 2) {
        value += gpu_shuffle_xor(value, mask);
    }
    return value;
}
static __device__ inline float gpu_codes_warp_sum(float value) {
    return gpu_warp_sum(value);
}

// N elements from k on: of i8, up to 16 products, which a float sums exactly.
template <typename X, int N>
static __device__ inline float gpu_codes_dot(const gpu_codes_product &all,
                                             const gpu_codes_place &at,
                                             const typename X::element *x, int k) {
    using element = typename X::element;
    constexpr int M = N < gpu_wide<element> ? N : gpu_wide<element>;
    float weights[N];
    if constexpr (N == 1) {
        weights[0] = gpu_codes_at(all, at.expert, at.output, k);
    } else {
        const int group = k / static_cast<int>(all.scales.columns);
        const float zero = gpu_codes_zero(all, gpu_codes_group(all, at.expert, at.output, group));
        gpu_codes_load<N>(all.code, gpu_codes_row(all, at.expert, at.output), k, zero, weights);
    }
    float sum = 0;
#pragma unroll
    for (int first = 0; first < N; first += M) {
        const gpu_pack<element, M> numbers = gpu_load<element, M>(x, k + first);
#pragma unroll
        for (int j = 0; j < M; ++j) {
            sum += X::number(numbers.at[j]) * weights[first + j];
        }
    }
    return sum;
}

// blockIdx.x: which outputs; blockIdx.y: the choice. N elements are of one group.
template <typename T, typename X, int N>
static __global__ void gpu_codes_few_kernel(gpu_choices choices, gpu_codes_product all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    gpu_codes_place at;
    at.p = blockIdx.y;
    at.expert = gpu_expert_of(choices, at.p);
    at.output = static_cast<int>(blockIdx.x) * GPU_EXPERTS_WARPS + threadIdx.y;
    if (at.expert < 0 || at.output >= all.outputs) {
        return; // the whole warp
    }
    const int64_t row = at.p / all.rows_per_x;
    const auto *x = gpu_row<const typename X::element>(all.x, row);
    const bool is_grouped = all.scales.across > 1;
    typename X::sum sum = 0;
    float total = 0;
    for (int k = threadIdx.x * N; k < all.depth; k += 32 * N) {
        const float dot = gpu_codes_dot<X, N>(all, at, x, k);
        if (is_grouped) {
            const int group = k / static_cast<int>(all.scales.columns);
            total += dot * gpu_codes_x_scale(all, row, group) *
                     gpu_codes_weight_scale(all, at.expert, at.output, group);
        } else {
            sum += static_cast<typename X::sum>(dot);
        }
    }
    sum = gpu_codes_warp_sum(sum);
    total = gpu_warp_sum(total);
    if (threadIdx.x == 0 && is_grouped) {
        gpu_codes_store<T>(all, at, total, true);
    } else if (threadIdx.x == 0) {
        gpu_codes_store<T>(all, at, sum, false);
    }
}

// ---- many rows ----------------------------------------------------------------------------------

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

// blockIdx.x: which outputs; blockIdx.y: the tile of rows, of which there may be fewer than blocks.
template <typename T, typename X>
static __global__ void gpu_codes_tiles_kernel(gpu_ordered ordered, int experts,
                                              gpu_codes_product all) {
    __shared__ gpu_tile_room room;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int number = static_cast<int>(blockIdx.y);
    if (number >= ordered.tiles[experts]) {
        return; // the whole block
    }
    const int expert = gpu_expert_of_tile(ordered.tiles, experts, number);
    const int first = ordered.first[expert] + (number - ordered.tiles[expert]) * GPU_TILE;
    const gpu_codes_tile tile = {expert, ordered.first[expert + 1] - first, ordered.order + first,
                                 static_cast<int>(blockIdx.x) * GPU_TILE};
    if (all.scales.across > 1) {
        gpu_codes_grouped<T, X>(all, tile, &room);
    } else {
        gpu_codes_whole<T, X>(all, tile, &room);
    }
}

#endif
