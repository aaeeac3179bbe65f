// SPDX-License-Identifier: Apache-2.0
// fused_moe on a GPU, and what the other whole mixtures of experts share with it: which choices are
// multiplied how, the memory between the steps. Which way it goes follows from sizes alone.
#include "mixture.h"

namespace {

enum { X, W13_WEIGHT, W2_WEIGHT, TOPK_WEIGHTS, TOPK_IDS, W13_BIAS, W2_BIAS, EXPERT_MAP };

// Lays the workspace of so many choices out; returns its bytes.
int64_t lay_out(const gpu_mixture *op, int64_t choices, char *memory, gpu_experts *out) {
    const int64_t tables = gpu_ordered_at(memory, op->experts, choices, &out->ordered);
    const int64_t products = gpu_even(choices * op->widest * op->bytes);
    out->inner = memory + tables;
    out->outer = out->inner;
    out->middle = out->inner + products;
    return tables + products + choices * op->width * op->bytes;
}

gpu_experts begin(const gpu_mixture *op, const berth_op_args *args) {
    gpu_experts all = gpu_experts_of(args, W13_WEIGHT, W13_BIAS);
    all.moe = op->moe;
    all.faster = op->faster;
    all.choices = gpu_choices_of(args->inputs[TOPK_IDS], args->inputs[TOPK_WEIGHTS],
                                 args->inputs[EXPERT_MAP], op->experts);
    all.rows = all.choices.count;
    all.is_few = gpu_experts_are_few(args->inputs[X]->shape[0], all.rows, op->experts);
    (void)lay_out(op, all.rows, static_cast<char *>(berth_gpu_data(args->workspace)), &all);
    return all;
}

} // namespace

// Both products run by one type of weights.
berth_status gpu_mixture_supports(const berth_op_site *site, const berth_device *) {
    if (site->inputs[W2_WEIGHT]->dtype != site->inputs[W13_WEIGHT]->dtype) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "weights of one type");
    }
    return gpu_check_rank(site, X);
}

berth_status gpu_mixture_create(const berth_op_site *site, const berth_device *device,
                                void **out_self) {
    const berth_status status = gpu_new<gpu_mixture>(site, device, out_self);
    if (status == BERTH_OK) {
        gpu_mixture *self = static_cast<gpu_mixture *>(*out_self);
        const berth_value_type *w13 = site->inputs[W13_WEIGHT];
        const berth_value_type *w2 = site->inputs[W2_WEIGHT];
        self->moe = berth_moe_read(site);
        self->moe.activation = berth_moe_gated(self->moe.activation);
        self->tokens = site->inputs[X]->dims[0];
        self->per_token = site->inputs[TOPK_IDS]->dims[1].b;
        self->experts = w13->dims[0].b;
        self->widest = w13->dims[1].b > w2->dims[1].b ? w13->dims[1].b : w2->dims[1].b;
        self->width = w2->dims[2].b;
        self->bytes = BERTH_DTYPE_BITS(site->inputs[X]->dtype) / 8;
    }
    return status;
}

uint64_t gpu_mixture_workspace(void *self, uint64_t tokens) {
    const gpu_mixture *op = static_cast<const gpu_mixture *>(self);
    gpu_experts unused;
    const int64_t rows = static_cast<int64_t>(gpu_extent(op->tokens, tokens));
    return static_cast<uint64_t>(lay_out(op, rows * op->per_token, nullptr, &unused));
}

berth_status gpu_mixture_forward(void *self, const berth_op_args *args) {
    const gpu_mixture *op = static_cast<const gpu_mixture *>(self);
    const berth_tensor *x = args->inputs[X];
    if (x->shape[0] == 0) {
        return BERTH_OK;
    }
    const gpu_experts all = begin(op, args);
    const gpu_expert_sum sum = {all.choices, all.outer, all.w2_weight->shape[1],
                                op->moe.is_weighted_first};
    const float *factors = op->moe.is_weighted_first ? all.choices.weights : nullptr;
    const berth_status ordered =
        all.is_few ? BERTH_OK : gpu_experts_order(op, all.choices, all.ordered);
    if (ordered != BERTH_OK) {
        return ordered;
    }
    return gpu_with_type(x->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const berth_status status = gpu_with_type(all.w13_weight->dtype, [&](auto weight) {
            return gpu_experts_compute<T, typename decltype(weight)::type>(
                op, all, x, all.choices.per_token, factors);
        });
        return status == BERTH_OK ? gpu_each<T, T>(op, sum, args->outputs[0]) : status;
    });
}

extern "C" {
extern const berth_op_impl berth_kernel_fused_moe;
const berth_op_impl berth_kernel_fused_moe = {
    BERTH_GPU_KERNEL("fused_moe"),
    GPU_MIXTURE_SLOTS,
};
}
