// SPDX-License-Identifier: Apache-2.0
// Experts' products as many_groups.cu has a layer's: blocks go through tiles of 128 rows of one
// expert by 192 of its outputs. Rows lie anywhere in x, so two warps copy them, 16 bytes at a time;
// one thread brings weights, a warp scales. Tiles of the same weights are neighbours.
#include <cuda/codes/experts_blocks.h>
#include <cuda/codes/many_blocks.h>

namespace {

constexpr int MOST_EXPERTS = 512;
constexpr int PIECES = STEP / 16; // of a row
constexpr int COPYING = 64;       // threads
constexpr int ROWS_EACH = ROWS * PIECES / COPYING;

struct experts_call {
    gpu_ordered ordered;
    int experts;
    gpu_codes_product all;
    cuda_groups groups;
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
    int rows;           // that are there
    const int32_t *its; // the choices
    int output;         // the first

    __device__ expert_tile(const experts_call &in, const int32_t *begins, int tile)
        : expert(gpu_expert_of_tile(begins, in.experts, tile / in.output_tiles)) {
        const int in_expert = tile - begins[expert] * in.output_tiles;
        const int down = begins[expert + 1] - begins[expert];
        const int first = in.ordered.first[expert] + in_expert % down * ROWS;
        rows = min(in.ordered.first[expert + 1] - first, ROWS);
        its = in.ordered.order + first;
        output = in_expert / down * TILE;
    }
    // The row of x of a row of the tile; behind the last the last.
    __device__ int x_row(const experts_call &in, int row) const {
        return its[min(row, rows - 1)] / in.all.rows_per_x;
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
        const int row = tile.expert * in.all.outputs + tile.output;
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

// A thread has the same piece of rows four of a warp apart.
__device__ void bring_rows(const experts_call &in, const cuda_ring &ring, const int32_t *begins) {
    const int own = static_cast<int>(threadIdx.x) % COPYING;
    const int piece = own % PIECES;
    cuda_place at = {0, 1};
    for_each_tile(in, begins, [&](const expert_tile &tile) {
        int its[ROWS_EACH];
#pragma unroll
        for (int i = 0; i < ROWS_EACH; ++i) {
            its[i] = tile.x_row(in, own / PIECES + i * (COPYING / PIECES));
        }
        for (int step = 0; step < in.steps; ++step) {
            const uint32_t to = ring.memory + at.stage * STAGE_BYTES;
            const int k = step * STEP + piece * 16;
            cuda_barrier_wait(ring.empty + 8 * at.stage, at.parity);
#pragma unroll
            for (int i = 0; i < ROWS_EACH; ++i) {
                const int row = own / PIECES + i * (COPYING / PIECES);
                cuda_copy_16(to + cuda_panel_place(row, piece),
                             in.all.x.data + its[i] * in.all.x.outer_gap + k, k < in.all.depth);
            }
            cuda_barrier_arrive_copied(ring.full + 8 * at.stage);
            at.go_on(STAGES);
        }
    });
}

__device__ void bring_scales(const experts_call &in, const cuda_ring &ring, const int32_t *begins,
                             step_scales *room) {
    cuda_place at = {0, 1};
    for_each_tile(in, begins, [&](const expert_tile &tile) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int output = min(tile.output + lane % PARTS * PART, in.all.outputs - 1);
        cuda_lane_scales<ROWS, PARTS> own(in.groups,
                                          gpu_codes_group(in.all, tile.expert, output, 0));
        own.choose([&](int row) { return tile.x_row(in, row); });
        cuda_bring_scales<ROWS, PARTS>(own, 0, in.steps, {ring, STAGES, room}, &at);
    });
}

// ---- groups that multiply -----------------------------------------------------------------------

// Of an expert; behind its last output nothing.
struct expert_ends {
    const experts_call &in;
    int expert;

    __device__ two_ends operator()(int output) const {
        const gpu_codes_product &all = in.all;
        float scales[2] = {1, 1};
        float more[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int own = min(output + i, all.outputs - 1);
            const int64_t at = static_cast<int64_t>(expert) * all.outputs + own;
            scales[i] = in.groups.weight.data ? 1 : gpu_codes_weight_scale(all, expert, own, 0);
            more[i] = all.bias ? gpu_load_any(all.bias, all.bias_dtype, at) : 0;
        }
        return two_ends{
            {scales[0], scales[1]},
            {more[0],   more[1]  }
        };
    }
};

// From a group's room to y, whose rows lie anywhere.
template <typename T>
__device__ void write_out(const gpu_codes_product &all, const expert_tile &tile, int output,
                          uint32_t from) {
    const int piece = static_cast<int>(threadIdx.x) % PIECES;
#pragma unroll
    for (int i = 0; i < OWN * PIECES / 128; ++i) {
        const int row = static_cast<int>(threadIdx.x) % 128 / PIECES + i * (128 / PIECES);
        const int in_tile = static_cast<int>(threadIdx.x) / 128 * OWN + row;
        if (in_tile < tile.rows && output + piece * 8 < all.outputs) {
            T *to = static_cast<T *>(all.y) + tile.its[in_tile] * int64_t{all.outputs} + output;
            *reinterpret_cast<uint4 *>(to + piece * 8) =
                cuda_load_shared(from + cuda_panel_place(row, piece));
        }
    }
}

template <typename T>
__device__ void multiply_all(const experts_call &in, const cuda_ring &ring, const int32_t *begins,
                             const step_scales *scales) {
    const uint32_t out = ring.memory + STAGES * STAGE_BYTES + threadIdx.x / 128 * OUT_BYTES;
    cuda_place at = {0, 0};
    if (threadIdx.x >= 128) {
        give_turn(0);
    }
    for_each_tile(in, begins, [&](const expert_tile &tile) {
        float totals[SUMS] = {};
        multiply<true>(ring, scales, in.steps, &at, totals);
        const expert_ends ends = {in, tile.expert};
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int output = tile.output + part * PART;
            group_sync(); // who still reads has the part before
            lay_out<T>(ends, output, totals + part * (SUMS / PARTS), out);
            group_sync();
            write_out<T>(in.all, tile, output, out);
        }
    });
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    blocks_kernel(experts_call in, const __grid_constant__ CUtensorMap weight) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * STAGES];
    __shared__ step_scales scales[STAGES];
    __shared__ int32_t begins[MOST_EXPERTS + 1];
    const int warp = static_cast<int>(threadIdx.x) / 32 - GROUPS * 4;
    gpu_wait_for_inputs();
    if (warp == 0) {
        count_tiles(in, begins);
    }
    const cuda_ring ring = make_ring(shared, signals, 2 + COPYING);
    if (warp < 0) {
        cuda_ask_for<MULTIPLYING_REGISTERS>();
        multiply_all<T>(in, ring, begins, scales);
        return;
    }
    cuda_give_back<BRINGING_REGISTERS>();
    if (threadIdx.x == GROUPS * 128) {
        bring_weights(in, ring, begins, &weight);
    } else if (warp == 1) {
        bring_scales(in, ring, begins, scales);
    } else if (warp > 1) {
        bring_rows(in, ring, begins);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

// A scale an output is left to the end.
cuda_groups groups_of(const gpu_codes_product &all) {
    constexpr int64_t ALL = INT64_C(1) << 30;
    cuda_groups groups = {all.scales, all.x_scales, all.x_scale_gap,
                          static_cast<int>(all.x_scale_step)};
    if (all.scales.across == 1) {
        groups.weight.data = nullptr;
        groups.weight.columns = ALL;
    }
    return groups;
}

template <typename T>
berth_status launch(const gpu_coded *op, const gpu_coded_call &call, const gpu_codes_product &all) {
    const auto kernel = blocks_kernel<T>;
    const int experts = static_cast<int>(op->experts);
    CUtensorMap weight;
    if (!cuda_describe_boxes({all.weight, int64_t{experts} * all.outputs, all.depth, all.depth,
                              TILE, STEP, CU_TENSOR_MAP_DATA_TYPE_UINT8,
                              CU_TENSOR_MAP_SWIZZLE_128B},
                             &weight)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                 "the driver does not describe experts' tiles");
    }
    const berth_status has_room = cuda_allow_shared(op, kernel, SHARED_BYTES);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    const experts_call in = {call.ordered,
                             experts,
                             all,
                             groups_of(all),
                             tiles_of(all.depth, STEP),
                             tiles_of(all.outputs, TILE)};
    const gpu_grid grid = {dim3(static_cast<unsigned>(op->gpu->multiprocessors[op->device])),
                           dim3(THREADS), SHARED_BYTES};
    return gpu_run(op, "experts of codes", grid, kernel, in, weight);
}

} // namespace

bool cuda_experts_are_blocks(const gpu_coded *op, const gpu_coded_stack &of) {
    const bool has_codes =
        op->kind == GPU_CODES_STATIC || op->kind == GPU_CODES_TOKEN || op->kind == GPU_CODES_GROUP;
    return has_codes && op->code == BERTH_CODE_E4M3 && op->experts <= MOST_EXPERTS &&
           of.outputs % 8 == 0 && of.depth % 16 == 0 &&
           (of.scales.across == 1 || cuda_groups_are_blocks(of.scales));
}

berth_status cuda_experts_blocks(const gpu_coded *op, const gpu_coded_call &call,
                                 const gpu_codes_product &all) {
    return op->dtype == BERTH_DTYPE_BF16 ? launch<gpu_bf16>(op, call, all)
                                         : launch<gpu_f16>(op, call, all);
}
