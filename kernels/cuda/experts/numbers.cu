// SPDX-License-Identifier: Apache-2.0
// Experts' products of many rows of 16 bits.
#include <cuda/experts/numbers.h>
#include <cuda/experts/tiles.h>

namespace {

// Of an expert, [experts, outputs]; behind its last output nothing.
struct expert_biases {
    const gpu_expert_product &all;
    int expert;

    __device__ float2 operator()(int output) const {
        const int64_t at = static_cast<int64_t>(expert) * all.outputs + output;
        return float2{1, all.bias && output < all.outputs
                             ? gpu_load_any(all.bias, all.bias_dtype, at)
                             : 0.0f};
    }
};

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    numbers_kernel(experts_call in, const __grid_constant__ CUtensorMap weight,
                   gpu_expert_product all) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ experts_room room;
    const experts_block block = begin_block(in, shared, &room, 0);
    if (block.warp >= 0) {
        cuda_give_back<BRINGING_REGISTERS>();
        bring_tiles(in, block, &weight);
        return;
    }
    cuda_ask_for<MULTIPLYING_REGISTERS>();
    const many_matrices matrices(block.ring);
    cuda_place at = {0, 0};
    for_each_tile(in, block.begins, [&](const expert_tile &tile) {
        float sums[SUMS];
        keep_ends(expert_biases{all, tile.expert}, tile.output, block.ends);
        multiply_steps<T, true>(block.ring, matrices, in.steps, &at, sums);
        finish<T>(in, tile, block.ends, sums, block.out());
    });
}

template <typename T>
berth_status launch(const gpu_op *op, const cuda_some_experts &some,
                    const gpu_expert_product &all) {
    const int bytes = all.depth * 2;
    const experts_call in = {
        some.ordered, some.experts, all.x.data, all.x.outer_gap,       all.rows_per_x,
        all.y,        all.outputs,  bytes,      tiles_of(bytes, STEP), tiles_of(all.outputs, TILE)};
    return start_experts(op, numbers_kernel<T>, in, all.weight, all);
}

} // namespace

const char *cuda_experts_why_not(const berth_op_site *site, const berth_device *device,
                                 const cuda_experts_inputs &at) {
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    const berth_value_type *x = site->inputs[at.x];
    const berth_value_type *w13 = site->inputs[at.w13_weight];
    const berth_value_type *w2 = site->inputs[at.w2_weight];
    const bool is_16 = x->dtype == BERTH_DTYPE_BF16 || x->dtype == BERTH_DTYPE_F16;
    const int64_t widths = w13->dims[1].b | w13->dims[2].b | w2->dims[1].b | w2->dims[2].b;
    return !gpu->groups[device->index]                       ? "not of compute capability 9.0"
           : !is_16                                          ? "only bf16 and f16"
           : w13->dtype != x->dtype || w2->dtype != x->dtype ? "weights of another type than x"
           : x->ndim != 2                                    ? "more than rows"
           : berth_moe_read(site).is_weighted_first          ? "tokens are weighed first"
           : w13->dims[0].b > CUDA_MOST_EXPERTS              ? "more than 512 experts"
           : widths % 8 != 0                                 ? "widths that are no multiples of 8"
                                                             : nullptr;
}

berth_status cuda_run_experts(const gpu_op *op, const cuda_some_experts &some,
                              const gpu_expert_product &all) {
    return some.dtype == BERTH_DTYPE_BF16 ? launch<gpu_bf16>(op, some, all)
                                          : launch<gpu_f16>(op, some, all);
}

berth_status cuda_experts_numbers(const gpu_op *op, const gpu_experts &experts,
                                  const gpu_expert_product &all) {
    const berth_tensor *weight = experts.w13_weight;
    return cuda_run_experts(
        op, {experts.ordered, static_cast<int>(weight->shape[0]), weight->dtype}, all);
}
