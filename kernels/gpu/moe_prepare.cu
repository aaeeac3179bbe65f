// SPDX-License-Identifier: Apache-2.0
// moe_prepare on a GPU: the tokens of every expert brought together, in their own order.
#include "choices.h"

namespace {

enum { X, TOPK_WEIGHTS, TOPK_IDS, EXPERT_MAP };
enum { EXPERT_X, EXPERT_FIRST, SLOTS };

struct preparer : gpu_op {
    int64_t experts;
    int is_weighted;
    berth_dim tokens; // of x
    int64_t per_token;
};

struct operands {
    gpu_choices choices;
    gpu_ordered ordered;
    gpu_rows x;
    void *rows; // expert_x, dense
    int32_t *slots;
    int64_t width;
    int is_weighted;
};

// A block a row of expert_x, which also tells the choice of that number when it has no row. A
// choice of an expert that is not there has the slot −2, which moe_finalize makes NaN.
template <typename T> __global__ void prepare_kernel(operands all) {
    const int row = static_cast<int>(blockIdx.x);
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int expert = gpu_expert_of(all.choices, row);
    const bool is_used = row < all.ordered.first[all.choices.experts];
    const int choice = is_used ? all.ordered.order[row] : 0;
    const T *from = gpu_row<const T>(all.x, choice / all.choices.per_token);
    T *to = static_cast<T *>(all.rows) + row * all.width;
    const float weight = all.is_weighted ? gpu_rounded<T>(all.choices.weights[choice]) : 1.0f;
    for (int64_t i = threadIdx.x; i < all.width; i += GPU_CHOICES_THREADS) {
        to[i] = gpu_round<T>(is_used ? gpu_float(from[i]) * weight : 0.0f);
    }
    if (threadIdx.x == 0 && is_used) {
        all.slots[choice] = row;
    }
    if (threadIdx.x == 0 && expert < 0) {
        all.slots[row] = expert;
    }
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<preparer>(site, device, out_self);
    if (status == BERTH_OK) {
        preparer *self = static_cast<preparer *>(*out_self);
        self->experts = berth_site_attribute(site, "num_local_experts")->i64;
        self->is_weighted = berth_site_attribute(site, "apply_router_weight_on_input")->i64 != 0;
        self->tokens = site->inputs[X]->dims[0];
        self->per_token = site->inputs[TOPK_IDS]->dims[1].b;
    }
    return status;
}

// Counts, tiles, order.
uint64_t workspace(void *self, uint64_t tokens) {
    const preparer *op = static_cast<const preparer *>(self);
    const uint64_t choices = gpu_extent(op->tokens, tokens) * static_cast<uint64_t>(op->per_token);
    return (2 * static_cast<uint64_t>(op->experts + 1) + choices) * sizeof(int32_t);
}

operands operands_of(const preparer *op, const berth_op_args *args) {
    int32_t *room = static_cast<int32_t *>(berth_gpu_data(args->workspace));
    operands all = {};
    all.choices = gpu_choices_of(args->inputs[TOPK_IDS], args->inputs[TOPK_WEIGHTS],
                                 args->inputs[EXPERT_MAP], op->experts);
    all.ordered.counts = room;
    all.ordered.tiles = room + op->experts + 1;
    all.ordered.order = room + 2 * (op->experts + 1);
    all.ordered.first = static_cast<int32_t *>(berth_gpu_data(args->outputs[EXPERT_FIRST]));
    all.x = gpu_rows_of(args->inputs[X]);
    all.rows = berth_gpu_data(args->outputs[EXPERT_X]);
    all.slots = static_cast<int32_t *>(berth_gpu_data(args->outputs[SLOTS]));
    all.width = args->inputs[X]->shape[1];
    all.is_weighted = op->is_weighted;
    return all;
}

berth_status forward(void *self, const berth_op_args *args) {
    const preparer *op = static_cast<const preparer *>(self);
    const operands all = operands_of(op, args);
    const gpu_grid grid = {dim3(static_cast<unsigned>(all.choices.count)),
                           dim3(GPU_CHOICES_THREADS), 0};
    const berth_status status = gpu_experts_order(op, all.choices, all.ordered);
    if (status != BERTH_OK || all.choices.count == 0) {
        return status;
    }
    return gpu_with_type(args->inputs[X]->dtype, [&](auto type) {
        return gpu_run(op, "moe_prepare", grid, prepare_kernel<typename decltype(type)::type>, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_moe_prepare;
const berth_op_impl berth_kernel_moe_prepare = {
    BERTH_GPU_KERNEL("moe_prepare"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
