// SPDX-License-Identifier: Apache-2.0
// topk_softmax: the experts of every token, the best first, and their weights.
//
//   gating_output            [tokens, experts]  f32, f16 or bf16
//   e_score_correction_bias  [experts]          optional, any float dtype
//   topk_weights             [tokens, topk]     f32
//   topk_ids                 [tokens, topk]     i32
//
// `scoring_func`: softmax, sigmoid or sqrtsoftplus of the logits in f32; a score that is not finite
// counts as zero. The largest score + bias is chosen, of equal ones the lowest id; the weight is
// the score without the bias. `renormalize`: divided by their sum, if that is positive; then times
// `routed_scaling_factor`. What vLLM's fused_topk and fused_topk_bias do on its devices; its CPU
// router leaves the bias out, which this does not.
#include <berth/op.h>

#include "routing_rules.h"

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(routing_check(site));
    routing_give(site, out);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *logits = args->inputs[GATING_OUTPUT];
    const berth_tensor *bias = args->inputs[E_SCORE_CORRECTION_BIAS];
    const int64_t experts = berth_row_length(logits);
    const routing_room room = routing_room_of(args, experts);
    const berth_routing routing = berth_routing_read(site);
    for (int64_t token = 0; token < berth_row_count(logits); ++token) {
        int32_t *ids = berth_row(args->outputs[TOPK_IDS], token);
        berth_load(berth_row(logits, token), logits->dtype, 0, experts, room.scores);
        berth_score(routing.scoring, room.scores, experts);
        for (int64_t i = 0; i < experts; ++i) {
            room.scores[i] = isfinite(room.scores[i]) ? room.scores[i] : 0;
            room.choice[i] =
                room.scores[i] + (bias ? berth_load_at(berth_data(bias), bias->dtype, i) : 0);
        }
        berth_choose(room.choice, experts, routing.topk, room.chosen, ids);
        berth_weigh_positive(&routing, room.scores, ids,
                             berth_row(args->outputs[TOPK_WEIGHTS], token));
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {ROUTING_INPUTS};
static const berth_op_attribute *const attributes[] = {ROUTING_ATTRIBUTES};

const berth_op berth_op_topk_softmax = {
    .size = sizeof(berth_op),
    .name = "topk_softmax",
    .class_name = "FusedTopKRouter",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = routing_room_bytes,
};
