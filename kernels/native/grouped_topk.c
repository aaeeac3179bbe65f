// SPDX-License-Identifier: Apache-2.0
// grouped_topk: the experts of every token, the best first, out of its best groups of experts.
//
//   gating_output            [tokens, experts]  f32, f16 or bf16
//   e_score_correction_bias  [experts]          optional, any float dtype
//   topk_weights             [tokens, topk]     f32
//   topk_ids                 [tokens, topk]     i32
//
// The experts stand in `num_expert_group` groups of equal size. The choice is by score + bias, or
// by the score; a group counts as the sum of its two best, or as its best without a bias, and only
// the `topk_group` best groups are chosen from. The weight is the score without the bias.
// `renormalize`: divided by their sum; then times `routed_scaling_factor`.
//
// Rounding: vLLM's GroupedTopk.forward_native: scores, sums, quotients and products each rounded to
// the logits' dtype, the choice to f32 where the bias has another; weights whose sum is zero become
// NaN. vLLM's fused kernel computes in f32, adds 1e-20 to the sum and takes the lowest of equal ids
// (as this does; native leaves it open); its CPU router leaves the bias out.
#include <berth/op.h>

#include "routing_rules.h"

enum { NUM_EXPERT_GROUP = ROUTED_SCALING_FACTOR + 1, TOPK_GROUP };

static berth_status check_groups(const berth_op_site *site) {
    const int64_t experts = routing_experts(site);
    const int64_t groups = site->attributes[NUM_EXPERT_GROUP]->i64;
    const int64_t kept = site->attributes[TOPK_GROUP]->i64;
    if (groups < 1 || experts % groups != 0) {
        return BERTH_RULE_ATTRIBUTE(site, NUM_EXPERT_GROUP, "must divide the %lld experts, is %lld",
                                    (long long)experts, (long long)groups);
    }
    if (kept < 1 || kept > groups) {
        return BERTH_RULE_ATTRIBUTE(site, TOPK_GROUP, "must be 1 to the %lld groups, is %lld",
                                    (long long)groups, (long long)kept);
    }
    if (site->attributes[TOPK]->i64 > experts / groups * kept) {
        return BERTH_RULE_ATTRIBUTE(site, TOPK, "must be at most the %lld experts of %lld groups",
                                    (long long)(experts / groups * kept), (long long)kept);
    }
    return site->inputs[E_SCORE_CORRECTION_BIAS] && experts == groups
               ? BERTH_RULE_ATTRIBUTE(site, NUM_EXPERT_GROUP,
                                      "must leave two experts a group with a bias, is %lld",
                                      (long long)groups)
               : BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(routing_check(site));
    BERTH_RULE_TRY(check_groups(site));
    routing_give(site, out);
    return BERTH_OK;
}

// What the choice is rounded to.
static berth_dtype choice_dtype(const berth_op_args *args) {
    const berth_tensor *bias = args->inputs[E_SCORE_CORRECTION_BIAS];
    const berth_dtype scores = args->inputs[GATING_OUTPUT]->dtype;
    return bias && bias->dtype != scores ? BERTH_DTYPE_F32 : scores;
}

static void score(const berth_op_site *site, const berth_op_args *args, int64_t token,
                  const routing_room *room) {
    const berth_tensor *logits = args->inputs[GATING_OUTPUT];
    const berth_tensor *bias = args->inputs[E_SCORE_CORRECTION_BIAS];
    const int64_t experts = berth_row_length(logits);
    berth_load(berth_row(logits, token), logits->dtype, 0, experts, room->scores);
    berth_score(berth_scoring_of(site->attributes[SCORING_FUNC]->str), room->scores, experts);
    for (int64_t i = 0; i < experts; ++i) {
        room->scores[i] = berth_round_to(logits->dtype, room->scores[i]);
        const float added = bias ? berth_load_at(berth_data(bias), bias->dtype, i) : 0;
        room->choice[i] = berth_round_to(choice_dtype(args), room->scores[i] + added);
    }
}

static void count_groups(const berth_routing *routing, const berth_op_args *args,
                         const routing_room *room) {
    const int64_t size = berth_row_length(args->inputs[GATING_OUTPUT]) / routing->groups;
    const int is_sum = args->inputs[E_SCORE_CORRECTION_BIAS] != NULL;
    for (int64_t group = 0; group < routing->groups; ++group) {
        room->counts[group] =
            berth_group_score(room->choice + group * size, size, is_sum, choice_dtype(args));
    }
    berth_keep_groups(routing, room->counts, size, room->choice);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_routing routing = berth_routing_read(site);
    const berth_tensor *logits = args->inputs[GATING_OUTPUT];
    const int64_t experts = berth_row_length(logits);
    const routing_room room = routing_room_of(args, experts);
    for (int64_t token = 0; token < berth_row_count(logits); ++token) {
        int32_t *ids = berth_row(args->outputs[TOPK_IDS], token);
        score(site, args, token, &room);
        count_groups(&routing, args, &room);
        berth_choose(room.choice, experts, routing.topk, room.chosen, ids);
        berth_weigh(&routing, logits->dtype, room.scores, ids,
                    berth_row(args->outputs[TOPK_WEIGHTS], token));
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {ROUTING_INPUTS};
static const berth_op_attribute *const attributes[] = {
    ROUTING_ATTRIBUTES,
    BERTH_OPTIONAL_ATTRIBUTE("num_expert_group", BERTH_ATTRIBUTE_I64, .i64 = 1),
    BERTH_OPTIONAL_ATTRIBUTE("topk_group", BERTH_ATTRIBUTE_I64, .i64 = 1),
};

const berth_op berth_op_grouped_topk = {
    .size = sizeof(berth_op),
    .name = "grouped_topk",
    .class_name = "GroupedTopk",
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
