// SPDX-License-Identifier: Apache-2.0
// Experts' products of e4m3 as codes, as codes/many_groups.cu has a layer's: a warp brings the
// scales of steps.
#include <cuda/codes/many_blocks.h>
#include <cuda/experts/blocks.h>
#include <cuda/experts/tiles.h>

namespace {

struct experts_scales {
    gpu_codes_product all;
    cuda_groups groups;
};

__device__ void bring_scales(const experts_call &in, const experts_scales &of,
                             const experts_block &block, step_scales *room) {
    cuda_place at = {0, 1};
    for_each_tile(in, block.begins, [&](const expert_tile &tile) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int output = min(tile.output + lane % PARTS * PART, in.outputs - 1);
        cuda_lane_scales<ROWS, PARTS> own(of.groups,
                                          gpu_codes_group(of.all, tile.expert, output, 0));
        own.choose([&](int row) { return tile.x_row(in, row); });
        cuda_bring_scales<ROWS, PARTS>(own, 0, in.steps, {block.ring, STAGES, room}, &at);
    });
}

// Of an expert; behind its last output nothing.
struct expert_ends {
    const experts_scales &of;
    int expert;

    __device__ float2 operator()(int output) const {
        const gpu_codes_product &all = of.all;
        const int own = min(output, all.outputs - 1);
        const int64_t at = static_cast<int64_t>(expert) * all.outputs + own;
        return float2{of.groups.weight.data ? 1 : gpu_codes_weight_scale(all, expert, own, 0),
                      all.bias ? gpu_load_any(all.bias, all.bias_dtype, at) : 0};
    }
};

template <typename T>
__device__ void multiply_all(const experts_call &in, const experts_scales &of,
                             const experts_block &block, const step_scales *scales) {
    cuda_place at = {0, 0};
    if (threadIdx.x >= 128) {
        give_turn(0);
    }
    for_each_tile(in, block.begins, [&](const expert_tile &tile) {
        float totals[SUMS] = {};
        keep_ends(expert_ends{of, tile.expert}, tile.output, block.ends);
        multiply<true>(block.ring, scales, in.steps, &at, totals);
        finish<T>(in, tile, block.ends, totals, block.out());
    });
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    blocks_kernel(experts_call in, const __grid_constant__ CUtensorMap weight, experts_scales of) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ experts_room room;
    __shared__ step_scales scales[STAGES];
    const experts_block block = begin_block(in, shared, &room, 1);
    if (block.warp < 0) {
        cuda_ask_for<MULTIPLYING_REGISTERS>();
        multiply_all<T>(in, of, block, scales);
        return;
    }
    cuda_give_back<BRINGING_REGISTERS>();
    bring_tiles(in, block, &weight);
    if (block.warp == 1) {
        bring_scales(in, of, block, scales);
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
    const experts_call in = {call.ordered,
                             static_cast<int>(op->experts),
                             all.x.data,
                             all.x.outer_gap,
                             all.rows_per_x,
                             all.y,
                             all.outputs,
                             all.depth,
                             tiles_of(all.depth, STEP),
                             tiles_of(all.outputs, TILE)};
    return start_experts(op, blocks_kernel<T>, in, all.weight, experts_scales{all, groups_of(all)});
}

} // namespace

bool cuda_experts_are_blocks(const gpu_coded *op, const gpu_coded_stack &of) {
    const bool has_codes =
        op->kind == GPU_CODES_STATIC || op->kind == GPU_CODES_TOKEN || op->kind == GPU_CODES_GROUP;
    return has_codes && op->code == BERTH_CODE_E4M3 && op->experts <= CUDA_MOST_EXPERTS &&
           of.outputs % 8 == 0 && of.depth % 16 == 0 &&
           (of.scales.across == 1 || cuda_groups_are_blocks(of.scales));
}

berth_status cuda_experts_blocks(const gpu_coded *op, const gpu_coded_call &call,
                                 const gpu_codes_product &all) {
    return op->dtype == BERTH_DTYPE_BF16 ? launch<gpu_bf16>(op, call, all)
                                         : launch<gpu_f16>(op, call, all);
}
