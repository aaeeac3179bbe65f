// SPDX-License-Identifier: Apache-2.0
// topk_softmax: scores as vector code; the choice looks for the largest k times, which is faster
// than any order for the few that are wanted.
#include <cpu/routing_row.h>

static void choose_by(const routing *self, const berth_tensor *bias, const routing_arrays *arrays) {
    for (int64_t i = 0; i < self->experts; ++i) {
        arrays->scores[i] = isfinite(arrays->scores[i]) ? arrays->scores[i] : 0;
        arrays->choice[i] = arrays->scores[i];
    }
    for (int64_t i = 0; bias && i < self->experts; ++i) {
        arrays->choice[i] += berth_load_at(berth_data(bias), bias->dtype, i);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const routing *self = state;
    const routing_arrays arrays = routing_arrays_of(args, self->experts);
    for (int64_t token = 0; token < berth_row_count(args->inputs[ROUTING_LOGITS]); ++token) {
        int32_t *ids = berth_row(args->outputs[ROUTING_IDS], token);
        routing_load(self, args, token, &arrays);
        choose_by(self, args->inputs[ROUTING_BIAS], &arrays);
        routing_choose(&arrays, self->experts, self->routing.topk, ids);
        berth_weigh_positive(&self->routing, arrays.scores, ids,
                             berth_row(args->outputs[ROUTING_WEIGHTS], token));
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_topk_softmax = {
    .size = sizeof(berth_op_impl),
    .op = "topk_softmax",
    .name = "cpu.topk_softmax",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = routing_create,
    .workspace = routing_workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
