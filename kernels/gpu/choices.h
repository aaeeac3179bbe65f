// SPDX-License-Identifier: Apache-2.0
// The experts that tokens choose, on a GPU: which one a choice means, and choices ordered by
// expert. Choice c of token t has the number t · k + c.
#ifndef BERTH_KERNELS_GPU_CHOICES_H
#define BERTH_KERNELS_GPU_CHOICES_H

#include "tiles.h"

#define GPU_CHOICES_THREADS 256

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
    __shared__ float room[GPU_CHOICES_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    int count = 0;
    for (int i = threadIdx.x; i < all.count; i += GPU_CHOICES_THREADS) {
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
    __shared__ int begins[GPU_CHOICES_THREADS]; // counts of the threads, then their first rows
    const int expert = static_cast<int>(blockIdx.x);
    const int run = (all.count + GPU_CHOICES_THREADS - 1) / GPU_CHOICES_THREADS;
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
        for (int i = 0; i < GPU_CHOICES_THREADS; ++i) {
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

// Parts of a workspace begin where every load is aligned.
static inline int64_t gpu_even(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

// Whether choices are multiplied one by one, and need no order.
static inline bool gpu_experts_are_few(int64_t tokens, int64_t choices, int64_t experts) {
    constexpr int64_t FEW_TOKENS = 8;
    constexpr int64_t MOST = 65535; // of a grid's second dimension
    return choices <= MOST && (tokens <= FEW_TOKENS || choices <= 2 * experts);
}

// The tables of the order in a workspace; returns their bytes.
static inline int64_t gpu_ordered_at(char *memory, int64_t experts, int64_t choices,
                                     gpu_ordered *out) {
    const int64_t table = gpu_even((experts + 1) * 4);
    out->counts = reinterpret_cast<int32_t *>(memory);
    out->first = reinterpret_cast<int32_t *>(memory + table);
    out->tiles = reinterpret_cast<int32_t *>(memory + 2 * table);
    out->order = reinterpret_cast<int32_t *>(memory + 3 * table);
    return 3 * table + gpu_even(choices * 4);
}

// Fills `out` for the choices.
static inline berth_status gpu_experts_order(const gpu_op *op, const gpu_choices &choices,
                                             const gpu_ordered &out) {
    const gpu_grid grid = {dim3(static_cast<unsigned>(choices.experts)), dim3(GPU_CHOICES_THREADS),
                           0};
    const berth_status status =
        gpu_run(op, "the experts' counts", grid, gpu_experts_count_kernel, choices, out);
    return status == BERTH_OK
               ? gpu_run(op, "the experts' order", grid, gpu_experts_order_kernel, choices, out)
               : status;
}

#endif
