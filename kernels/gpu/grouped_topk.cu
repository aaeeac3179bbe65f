// SPDX-License-Identifier: Apache-2.0
// grouped_topk on a GPU: the experts of every token out of its best groups, every step rounded to
// the logits' type as in the reference.
#include "routing.h"

namespace {

constexpr int MAX_GROUPS = 64;

// What a group counts: its best choice, or with a bias its two best. C: the choice's type.
template <typename C> __device__ float count_of(const float *choice, int size, bool is_sum) {
    float first = -INFINITY;
    float second = -INFINITY;
    for (int i = 0; i < size; ++i) {
        const float lower = choice[i] > first ? first : choice[i];
        second = lower > second ? lower : second;
        first = choice[i] > first ? choice[i] : first;
    }
    return is_sum ? gpu_rounded<C>(first + second) : first;
}

// All but the best groups out of the choice.
template <typename C>
__device__ void keep_groups(const gpu_routing_call &call, float *counts, float *choice) {
    const int groups = static_cast<int>(call.rules.groups);
    const int size = call.experts / groups;
    for (int group = threadIdx.x; group < groups; group += 32) {
        counts[group] = count_of<C>(choice + group * size, size, call.bias != nullptr);
    }
    __syncthreads();
    for (int group = threadIdx.x; group < groups; group += 32) {
        int better = 0;
        for (int other = 0; other < groups; ++other) {
            better +=
                counts[other] > counts[group] || (counts[other] == counts[group] && other < group);
        }
        for (int i = 0; i < size && better >= call.rules.kept_groups; ++i) {
            choice[group * size + i] = -INFINITY;
        }
    }
    __syncthreads();
}

// T: the logits' type; C: what the choice is rounded to.
template <typename T, typename C> __global__ void grouped_topk_kernel(gpu_routing_call call) {
    extern __shared__ float shared[];
    __shared__ float counts[MAX_GROUPS];
    const gpu_routing_room room = {shared, shared + call.experts};
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    gpu_score<T>(call, gpu_row<const T>(call.logits, blockIdx.x), room.scores);
    for (int i = threadIdx.x; i < call.experts; i += 32) {
        room.scores[i] = gpu_rounded<T>(room.scores[i]);
        const float bias = call.bias ? gpu_load_any(call.bias, call.bias_dtype, i) : 0.0f;
        room.choice[i] = gpu_rounded<C>(room.scores[i] + bias);
    }
    __syncthreads();
    keep_groups<C>(call, counts, room.choice);
    gpu_choose<T, false>(call, room, blockIdx.x);
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    if (berth_site_attribute(site, "num_expert_group")->i64 > MAX_GROUPS) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "more than %d groups", MAX_GROUPS);
    }
    return gpu_routing_supports(site, device);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_routing *op = static_cast<const gpu_routing *>(self);
    gpu_routing_call call;
    const gpu_grid grid = gpu_routing_begin(op, args, &call);
    const berth_dtype dtype = args->inputs[0]->dtype;
    if (grid.blocks.x == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return call.bias_dtype == dtype
                   ? gpu_run(op, "grouped_topk", grid, grouped_topk_kernel<T, T>, call)
                   : gpu_run(op, "grouped_topk", grid, grouped_topk_kernel<T, float>, call);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_grouped_topk;
const berth_op_impl berth_kernel_grouped_topk = {
    BERTH_GPU_KERNEL("grouped_topk"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_routing_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
