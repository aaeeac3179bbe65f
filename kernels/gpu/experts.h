// SPDX-License-Identifier: Apache-2.0
// The experts of a mixture on a GPU, in device code: products of an expert's rows, its activation.
// kernels/moe.h says what an expert computes. Row p of what lies between the steps belongs to
// choice p; rows of choices of no expert are never read.
#ifndef BERTH_KERNELS_GPU_EXPERTS_H
#define BERTH_KERNELS_GPU_EXPERTS_H

#include "activation.h"
#include "choices.h"

#include <moe.h>

#define GPU_EXPERTS_WARPS 8 // of a block, few rows

// ---- products -----------------------------------------------------------------------------------

// y[p] = weight[expert of p] · x[p / rows_per_x] + bias[expert of p], rounded.
struct gpu_expert_product {
    gpu_rows x;
    int rows_per_x;
    const void *weight; // [experts, outputs, depth]
    const void *bias;   // [experts, outputs], NULL: none
    berth_dtype bias_dtype;
    const float *factors; // of the rows of x, rounded, NULL: none
    void *y;              // [rows, outputs]
    int outputs;
    int depth;
};

// An element of x, as the product takes it.
template <typename T>
static __device__ inline float gpu_expert_weighted(const gpu_expert_product &all, int64_t p,
                                                   float x) {
    return all.factors ? gpu_rounded<T>(x * gpu_rounded<T>(all.factors[p])) : x;
}

template <typename T>
static __device__ inline void gpu_expert_store(const gpu_expert_product &all, int expert, int64_t p,
                                               int output, float sum) {
    const int64_t row = static_cast<int64_t>(expert) * all.outputs;
    sum += all.bias ? gpu_load_any(all.bias, all.bias_dtype, row + output) : 0.0f;
    static_cast<T *>(all.y)[p * all.outputs + output] = gpu_round<T>(sum);
}

// Few rows: a warp an output, N elements of the depth at once. blockIdx.x: which outputs;
// blockIdx.y: the choice.
template <typename T, typename W, int N>
static __global__ void gpu_expert_few_kernel(gpu_choices choices, gpu_expert_product all) {
    const int output = static_cast<int>(blockIdx.x) * GPU_EXPERTS_WARPS + threadIdx.y;
    const int64_t p = blockIdx.y;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int expert = gpu_expert_of(choices, p);
    if (expert < 0 || output >= all.outputs) {
        return; // the whole warp
    }
    const W *weight = static_cast<const W *>(all.weight) +
                      (static_cast<int64_t>(expert) * all.outputs + output) * all.depth;
    const T *row = gpu_row<const T>(all.x, p / all.rows_per_x);
    float sum = 0;
    for (int k = threadIdx.x * N; k < all.depth; k += 32 * N) {
        const gpu_pack<W, N> w = gpu_load<W, N>(weight, k);
        const gpu_pack<T, N> x = gpu_load<T, N>(row, k);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            sum += gpu_expert_weighted<T>(all, p, gpu_float(x.at[j])) * gpu_float(w.at[j]);
        }
    }
    sum = gpu_warp_sum(sum);
    if (threadIdx.x == 0) {
        gpu_expert_store<T>(all, expert, p, output, sum);
    }
}

// The expert of a tile of rows: the last whose tiles begin at or before it. Experts without rows
// have no tiles, so they come before the one that is meant.
static __device__ inline int gpu_expert_of_tile(const int32_t *tiles, int experts, int tile) {
    int low = 0;
    int high = experts - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (tiles[middle] <= tile) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// Many rows: tiles of those of one expert. blockIdx.x: which outputs; blockIdx.y: the tile of rows,
// of which there may be fewer than blocks.
template <typename T, typename W>
static __global__ void gpu_expert_tiles_kernel(gpu_ordered ordered, int experts,
                                               gpu_expert_product all) {
    __shared__ gpu_tile_room room;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int tile = static_cast<int>(blockIdx.y);
    if (tile >= ordered.tiles[experts]) {
        return; // the whole block
    }
    const int expert = gpu_expert_of_tile(ordered.tiles, experts, tile);
    const int first = ordered.first[expert] + (tile - ordered.tiles[expert]) * GPU_TILE;
    const int rows = ordered.first[expert + 1] - first;
    const int first_output = static_cast<int>(blockIdx.x) * GPU_TILE;
    const W *weight = static_cast<const W *>(all.weight) +
                      (static_cast<int64_t>(expert) * all.outputs + first_output) * all.depth;
    const auto choice_of = [&](int row) {
        return ordered.order ? ordered.order[first + row] : first + row;
    };
    gpu_tile_product(
        all.depth, &room,
        [&](int row, int k) {
            if (row >= rows) {
                return 0.0f;
            }
            const int p = choice_of(row);
            return gpu_expert_weighted<T>(
                all, p, gpu_float(gpu_row<const T>(all.x, p / all.rows_per_x)[k]));
        },
        [&](int output, int k) {
            return first_output + output < all.outputs
                       ? gpu_float(weight[static_cast<int64_t>(output) * all.depth + k])
                       : 0.0f;
        },
        [&](int row, int output, float sum) {
            if (row < rows && first_output + output < all.outputs) {
                gpu_expert_store<T>(all, expert, choice_of(row), first_output + output, sum);
            }
        });
}

// ---- activation ---------------------------------------------------------------------------------

// activation(gate) · up as berth_moe_activate, by the name of the kind that has a gate.
static __device__ inline float gpu_moe_activate(const berth_moe &moe, float gate, float up) {
    const float positive = gpu_at_least(gate, 0.0f);
    switch (moe.activation) {
    case BERTH_MOE_GELU:
        return gpu_gelu_erf(gate) * up;
    case BERTH_MOE_GELU_TANH:
        return gpu_gelu_tanh(gate) * up;
    case BERTH_MOE_RELU2:
        return positive * positive * up;
    case BERTH_MOE_SWIGLUOAI:
    case BERTH_MOE_SWIGLUOAI_UNINTERLEAVE:
        gate = gpu_at_most(gate, moe.limit);
        gate *= gpu_sigmoid<float>(gate * moe.alpha);
        return gate * (gpu_at_least(gpu_at_most(up, moe.limit), -moe.limit) + moe.beta);
    case BERTH_MOE_SWIGLUSTEP:
        return gpu_at_most(gpu_silu<float>(gate), moe.limit) *
               gpu_at_least(gpu_at_most(up, moe.limit), -moe.limit);
    case BERTH_MOE_SITU:
        gate = moe.beta * tanhf(gate / moe.beta) * gpu_sigmoid<float>(gate);
        return gate * (moe.linear_beta > 0 ? moe.linear_beta * tanhf(up / moe.linear_beta) : up);
    default:
        return gpu_silu<float>(gate) * up;
    }
}

// Element i of row p, from the first product's row of gates and what they gate.
struct gpu_expert_activation {
    berth_moe moe;     // a kind that has a gate, which is then 1 where there is none
    const void *inner; // [rows, inner_width]
    int64_t inner_width;
    int64_t width;

    template <typename T> __device__ float at(int64_t p, int64_t i) const {
        const T *row = static_cast<const T *>(inner) + p * inner_width;
        const bool is_in_turns = moe.activation == BERTH_MOE_SWIGLUOAI;
        const float gate = gpu_float(row[is_in_turns ? 2 * i : i]);
        const float up =
            inner_width == width ? 1.0f : gpu_float(row[is_in_turns ? 2 * i + 1 : width + i]);
        return gpu_moe_activate(moe, gate, up);
    }
};

// ---- sum ----------------------------------------------------------------------------------------

// Element i of token t: the sum over its choices in their order.
struct gpu_expert_sum {
    gpu_choices choices;
    const void *rows; // [choices, width]
    int64_t width;
    int is_weighted; // already

    // What a choice adds; NaN, so that the step fails where a token is chosen, when there is no
    // such expert.
    template <typename T> __device__ float share(int64_t p, int64_t i) const {
        const int expert = gpu_expert_of(choices, p);
        if (expert < 0) {
            return expert == -2 ? NAN : 0.0f;
        }
        return gpu_float(static_cast<const T *>(rows)[p * width + i]) *
               (is_weighted ? 1.0f : choices.weights[p]);
    }

    template <typename T> __device__ float at(int64_t token, int64_t i) const {
        float sum = 0;
        for (int c = 0; c < choices.per_token; ++c) {
            sum += share<T>(token * choices.per_token + c, i);
        }
        return sum;
    }
};

#endif
