// SPDX-License-Identifier: Apache-2.0
// grouped_topk: scores as vector code, rounded where the reference rounds.
#include <cpu/routing_row.h>

static void choose_by(const routing *self, const berth_op_args *args,
                      const routing_arrays *arrays) {
    const berth_dtype dtype = args->inputs[ROUTING_LOGITS]->dtype;
    const berth_tensor *bias = args->inputs[ROUTING_BIAS];
    const berth_dtype of_choice = bias && bias->dtype != dtype ? BERTH_DTYPE_F32 : dtype;
    const int64_t size = self->experts / self->routing.groups;
    for (int64_t i = 0; i < self->experts && dtype != BERTH_DTYPE_F32; ++i) {
        arrays->scores[i] = berth_round_to(dtype, arrays->scores[i]);
    }
    memcpy(arrays->choice, arrays->scores, (size_t)self->experts * sizeof *arrays->choice);
    for (int64_t i = 0; bias && i < self->experts; ++i) {
        const float sum = arrays->scores[i] + berth_load_at(berth_data(bias), bias->dtype, i);
        arrays->choice[i] = berth_round_to(of_choice, sum);
    }
    for (int64_t group = 0; group < self->routing.groups; ++group) {
        arrays->counts[group] =
            berth_group_score(arrays->choice + group * size, size, bias != NULL, of_choice);
    }
    berth_keep_groups(&self->routing, arrays->counts, size, arrays->choice);
}

static berth_status forward(void *state, const berth_op_args *args) {
    const routing *self = state;
    const routing_arrays arrays = routing_arrays_of(args, self->experts);
    const berth_tensor *logits = args->inputs[ROUTING_LOGITS];
    for (int64_t token = 0; token < berth_row_count(logits); ++token) {
        int32_t *ids = berth_row(args->outputs[ROUTING_IDS], token);
        routing_load(self, args, token, &arrays);
        choose_by(self, args, &arrays);
        routing_choose(&arrays, self->experts, self->routing.topk, ids);
        berth_weigh(&self->routing, logits->dtype, arrays.scores, ids,
                    berth_row(args->outputs[ROUTING_WEIGHTS], token));
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_grouped_topk = {
    .size = sizeof(berth_op_impl),
    .op = "grouped_topk",
    .name = "cpu.grouped_topk",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = routing_create,
    .workspace = routing_workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
