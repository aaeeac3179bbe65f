// SPDX-License-Identifier: Apache-2.0
// The experts of a mixture on a GPU, in device code: which expert a choice means, choices ordered
// by expert, products of an expert's rows, its activation. kernels/moe.h says what an expert
// computes. Row p of what lies between the steps belongs to choice p, choice c of token t being
// t · k + c; rows of choices of no expert are never read.
#ifndef BERTH_KERNELS_GPU_EXPERTS_H
#define BERTH_KERNELS_GPU_EXPERTS_H

#include "activation.h"
#include "tiles.h"

#include <moe.h>

#define GPU_EXPERTS_THREADS 256
#define GPU_EXPERTS_WARPS   8 // of a block, few rows

// ---- choices ------------------------------------------------------------------------------------

struct gpu_choices {
    const void *ids; // [tokens, k]
    berth_dtype ids_dtype;
    const void *map; // expert_map [mapped], NULL: none
    berth_dtype map_dtype;
    int64_t mapped;
    const float *weights; // [tokens, k]
    int count;            // tokens · k
    int per_token;        // k
    int experts;
};

// As berth_moe_expert: −1 nobody's or another rank's, −2 there is no such expert.
static __device__ inline int gpu_expert_of(const gpu_choices &all, int64_t choice) {
    int64_t id = gpu_integer(all.ids, all.ids_dtype, choice);
    if (id == -1) {
        return -1;
    }
    if (all.map && (id < 0 || id >= all.mapped)) {
        return -2;
    }
    id = all.map ? gpu_integer(all.map, all.map_dtype, id) : id;
    return id < -1 || id >= all.experts ? -2 : static_cast<int>(id);
}

// Choices ordered by expert, those of one expert in their own order; and the tiles of rows that
// they fill. Expert e has order[first[e]] to order[first[e + 1]], and the tiles from tiles[e] on.
struct gpu_ordered {
    int32_t *counts; // [experts]
    int32_t *first;  // [experts + 1]
    int32_t *tiles;  // [experts + 1]
    int32_t *order;  // [choices]; NULL: rows are in order already
};

// A block an expert.
static __global__ void gpu_experts_count_kernel(gpu_choices all, gpu_ordered out) {
    __shared__ float room[GPU_EXPERTS_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    int count = 0;
    for (int i = threadIdx.x; i < all.count; i += GPU_EXPERTS_THREADS) {
        count += gpu_expert_of(all, i) == static_cast<int>(blockIdx.x);
    }
    // A float counts exactly up to 2^24.
    const float sum = gpu_block_sum(static_cast<float>(count), room);
    if (threadIdx.x == 0) {
        out.counts[blockIdx.x] = static_cast<int32_t>(sum);
    }
}

// Thread 0 of an expert's block: where its rows and tiles begin. The last expert's also writes the
// ends.
static __device__ inline int gpu_experts_begin(const gpu_ordered &out, int expert, int experts) {
    int rows = 0;
    int tiles = 0;
    for (int e = 0; e < expert; ++e) {
        rows += out.counts[e];
        tiles += (out.counts[e] + GPU_TILE - 1) / GPU_TILE;
    }
    out.first[expert] = rows;
    out.tiles[expert] = tiles;
    if (expert == experts - 1) {
        out.first[experts] = rows + out.counts[expert];
        out.tiles[experts] = tiles + (out.counts[expert] + GPU_TILE - 1) / GPU_TILE;
    }
    return rows;
}

// A block an expert; a thread a run of choices.
static __global__ void gpu_experts_order_kernel(gpu_choices all, gpu_ordered out) {
    __shared__ int begins[GPU_EXPERTS_THREADS]; // counts of the threads, then their first rows
    const int expert = static_cast<int>(blockIdx.x);
    const int run = (all.count + GPU_EXPERTS_THREADS - 1) / GPU_EXPERTS_THREADS;
    const int begin = static_cast<int>(threadIdx.x) * run;
    const int end = begin + run < all.count ? begin + run : all.count;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    int count = 0;
    for (int i = begin; i < end; ++i) {
        count += gpu_expert_of(all, i) == expert;
    }
    begins[threadIdx.x] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
        int row = gpu_experts_begin(out, expert, all.experts);
        for (int i = 0; i < GPU_EXPERTS_THREADS; ++i) {
            const int its = begins[i];
            begins[i] = row;
            row += its;
        }
    }
    __syncthreads();
    int row = begins[threadIdx.x];
    for (int i = begin; i < end; ++i) {
        if (gpu_expert_of(all, i) == expert) {
            out.order[row++] = i;
        }
    }
}

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

template <typename T>
static __device__ inline float gpu_expert_input(const gpu_expert_product &all, int64_t p, int k) {
    const float x = gpu_float(gpu_row<const T>(all.x, p / all.rows_per_x)[k]);
    return all.factors ? gpu_rounded<T>(x * gpu_rounded<T>(all.factors[p])) : x;
}

template <typename T>
static __device__ inline void gpu_expert_store(const gpu_expert_product &all, int expert, int64_t p,
                                               int output, float sum) {
    const int64_t row = static_cast<int64_t>(expert) * all.outputs;
    sum += all.bias ? gpu_load_any(all.bias, all.bias_dtype, row + output) : 0.0f;
    static_cast<T *>(all.y)[p * all.outputs + output] = gpu_round<T>(sum);
}

// Few rows: a warp an output. blockIdx.x: which outputs; blockIdx.y: the choice.
template <typename T, typename W>
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
    float sum = 0;
    for (int k = threadIdx.x; k < all.depth; k += 32) {
        sum += gpu_expert_input<T>(all, p, k) * gpu_float(weight[k]);
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
            return row < rows ? gpu_expert_input<T>(all, choice_of(row), k) : 0.0f;
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

// activation(gate) · up as berth_moe_activate, `up` ignored where there is no gate.
static __device__ inline float gpu_moe_activate(const berth_moe &moe, float gate, float up) {
    const float positive = gpu_at_least(gate, 0.0f);
    switch (moe.activation) {
    case BERTH_MOE_GELU:
    case BERTH_MOE_GELU_NO_MUL:
        gate = gpu_gelu_erf(gate);
        break;
    case BERTH_MOE_GELU_TANH:
    case BERTH_MOE_GELU_TANH_NO_MUL:
        gate = gpu_gelu_tanh(gate);
        break;
    case BERTH_MOE_RELU2:
    case BERTH_MOE_RELU2_NO_MUL:
        gate = positive * positive;
        break;
    case BERTH_MOE_SWIGLUOAI:
    case BERTH_MOE_SWIGLUOAI_UNINTERLEAVE:
        gate = gpu_at_most(gate, moe.limit);
        gate = gate * gpu_sigmoid<float>(gate * moe.alpha);
        up = gpu_at_least(gpu_at_most(up, moe.limit), -moe.limit) + moe.beta;
        break;
    case BERTH_MOE_SWIGLUSTEP:
        gate = gpu_at_most(gpu_silu<float>(gate), moe.limit);
        up = gpu_at_least(gpu_at_most(up, moe.limit), -moe.limit);
        break;
    case BERTH_MOE_SITU:
        gate = moe.beta * tanhf(gate / moe.beta) * gpu_sigmoid<float>(gate);
        up = moe.linear_beta > 0 ? moe.linear_beta * tanhf(up / moe.linear_beta) : up;
        break;
    default:
        gate = gpu_silu<float>(gate);
    }
    return moe.activation < BERTH_MOE_SILU_NO_MUL ? gate * up : gate;
}

// Element i of row p, from the first product's row of gates and what they gate.
struct gpu_expert_activation {
    berth_moe moe;
    const void *inner; // [rows, inner_width]
    int64_t inner_width;
    int64_t width;

    template <typename T> __device__ float at(int64_t p, int64_t i) const {
        const T *row = static_cast<const T *>(inner) + p * inner_width;
        const bool is_in_turns = moe.activation == BERTH_MOE_SWIGLUOAI;
        const float gate = gpu_float(row[is_in_turns ? 2 * i : i]);
        const float up =
            inner_width == width ? 0.0f : gpu_float(row[is_in_turns ? 2 * i + 1 : width + i]);
        return gpu_moe_activate(moe, gate, up);
    }
};

// ---- the host's side ----------------------------------------------------------------------------

static inline gpu_choices gpu_choices_of(const berth_tensor *ids, const berth_tensor *weights,
                                         const berth_tensor *map, int64_t experts) {
    gpu_choices out = {};
    out.ids = berth_gpu_data(ids);
    out.ids_dtype = ids->dtype;
    out.map = map ? berth_gpu_data(map) : nullptr;
    out.map_dtype = map ? map->dtype : ids->dtype;
    out.mapped = map ? map->shape[0] : 0;
    out.weights = static_cast<const float *>(berth_gpu_data(weights));
    out.count = static_cast<int>(ids->shape[0] * ids->shape[1]);
    out.per_token = static_cast<int>(ids->shape[1]);
    out.experts = static_cast<int>(experts);
    return out;
}

// Fills `out` for the choices.
static inline berth_status gpu_experts_order(const gpu_op *op, const gpu_choices &choices,
                                             const gpu_ordered &out) {
    const gpu_grid grid = {dim3(static_cast<unsigned>(choices.experts)), dim3(GPU_EXPERTS_THREADS),
                           0};
    const berth_status status =
        gpu_run(op, "the experts' counts", grid, gpu_experts_count_kernel, choices, out);
    return status == BERTH_OK
               ? gpu_run(op, "the experts' order", grid, gpu_experts_order_kernel, choices, out)
               : status;
}

#endif
