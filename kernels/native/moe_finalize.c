// SPDX-License-Identifier: Apache-2.0
// moe_finalize: every token's share of what the experts made of it, the last of the three steps of
// modular_fused_moe. Where experts live on several ranks, this is what brings tokens back.
//
//   expert_y      [rows, hidden]    f32, f16 or bf16
//   topk_weights  [tokens, k]       f32
//   slots         [tokens, k]       i32 or i64, the row of every choice, −1: none
//   y             [tokens, hidden]  like expert_y: the sum over k of weight · row, in f32
//
// `apply_router_weight_on_input`: the rows are weighed already.
#include <berth/op.h>

#include "moe_rules.h"

enum { EXPERT_Y, TOPK_WEIGHTS, SLOTS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, EXPERT_Y));
    BERTH_RULE_TRY(berth_rule_rank(site, EXPERT_Y, 2));
    BERTH_RULE_TRY(berth_rule_width(site, EXPERT_Y));
    BERTH_RULE_TRY(berth_rule_rank(site, SLOTS, 2));
    BERTH_RULE_TRY(moe_check_routing(site, site->inputs[SLOTS]->dims[0], TOPK_WEIGHTS, SLOTS));
    berth_rule_give(out, site->inputs[EXPERT_Y])->dims[0] = site->inputs[SLOTS]->dims[0];
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *rows = args->inputs[EXPERT_Y];
    const berth_tensor *slots = args->inputs[SLOTS];
    const int is_first = berth_moe_read(site).is_weighted_first;
    const int64_t count = berth_row_count(rows);
    float *sum = berth_data(args->workspace);
    for (int64_t token = 0; token < slots->shape[0]; ++token) {
        const float *weights = berth_row(args->inputs[TOPK_WEIGHTS], token);
        memset(sum, 0, (size_t)berth_row_length(rows) * sizeof *sum);
        for (int64_t i = 0; i < slots->shape[1]; ++i) {
            const int64_t slot = berth_moe_expert(slots, NULL, token, i, count);
            if (slot == -2) {
                return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                         "moe_finalize: a slot of token %lld is none of the %lld",
                                         (long long)token, (long long)count);
            }
            const float weight = is_first ? 1 : weights[i];
            for (int64_t j = 0; slot >= 0 && j < berth_row_length(rows); ++j) {
                sum[j] += berth_load_at(berth_row(rows, slot), rows->dtype, j) * weight;
            }
        }
        berth_store(berth_row(args->outputs[0], token), rows->dtype, 0, berth_row_length(rows),
                    sum);
    }
    return BERTH_OK;
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)berth_last_dim(site->inputs[EXPERT_Y]).b * sizeof(float);
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("expert_y"),
    BERTH_INPUT("topk_weights"),
    BERTH_INPUT("slots"),
};
static const berth_op_attribute *const attributes[] = {MOE_WEIGHTED_FIRST_ATTRIBUTE};

const berth_op berth_op_moe_finalize = {
    .size = sizeof(berth_op),
    .name = "moe_finalize",
    .class_name = "MoEFinalize",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
