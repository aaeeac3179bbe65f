// SPDX-License-Identifier: Apache-2.0
// moe_experts: every expert on its own rows, the second of the three steps of modular_fused_moe.
//
//   expert_x      [rows, hidden]              f32, f16 or bf16, by expert
//   expert_first  [experts + 1]               i32, the first row of each expert, and the end of all
//   w13_weight    [experts, 2 inter, hidden]  any float dtype; `inter` rows without a gate
//   w2_weight     [experts, hidden, inter]    any float dtype
//   w13_bias      [experts, 2 inter]          optional, as w2_bias [experts, hidden]
//   y             like expert_x               zero behind the last expert's rows
//
// Rounded to the rows' dtype: each product with its bias, and the activation.
#include <berth/op.h>

#include "moe_rules.h"

enum { EXPERT_X, EXPERT_FIRST, W13_WEIGHT, W2_WEIGHT, W13_BIAS, W2_BIAS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    static const moe_inputs at = {EXPERT_X, W13_WEIGHT, W2_WEIGHT, W13_BIAS, W2_BIAS};
    BERTH_RULE_TRY(moe_check_weights(site, &at));
    const berth_value_type *first = site->inputs[EXPERT_FIRST];
    if (first->dtype != BERTH_DTYPE_I32) {
        return BERTH_RULE_FAIL(site, EXPERT_FIRST, "must be i32");
    }
    const int64_t experts = site->inputs[W13_WEIGHT]->dims[0].b;
    BERTH_RULE_TRY(berth_rule_rank(site, EXPERT_FIRST, 1));
    BERTH_RULE_TRY(berth_rule_dim(site, EXPERT_FIRST, 0, BERTH_DIM_CONST(experts + 1)));
    berth_rule_give(out, site->inputs[EXPERT_X]);
    return BERTH_OK;
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return moe_room_bytes(site->inputs[W13_WEIGHT], site->inputs[W2_WEIGHT]) +
           (uint64_t)berth_last_dim(site->inputs[EXPERT_X]).b * sizeof(float);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[EXPERT_X];
    const berth_tensor *w13 = args->inputs[W13_WEIGHT];
    const int32_t *first = berth_data(args->inputs[EXPERT_FIRST]);
    const int64_t hidden = berth_row_length(x);
    float *y = berth_data(args->workspace);
    const moe_experts experts = {
        .moe = berth_moe_read(site),
        .w13_weight = w13,
        .w2_weight = args->inputs[W2_WEIGHT],
        .w13_bias = args->inputs[W13_BIAS],
        .w2_bias = args->inputs[W2_BIAS],
        .dtype = x->dtype,
        .inner = y + hidden,
        .activated = y + hidden + w13->shape[1],
    };
    int64_t expert = 0;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        while (expert < w13->shape[0] && row >= first[expert + 1]) {
            ++expert;
        }
        memset(y, 0, (size_t)hidden * sizeof *y);
        if (expert < w13->shape[0]) {
            moe_run_expert(&experts, expert, berth_row(x, row), y);
        }
        berth_store(berth_row(args->outputs[0], row), x->dtype, 0, hidden, y);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("expert_x"),  BERTH_INPUT("expert_first"),      BERTH_INPUT("w13_weight"),
    BERTH_INPUT("w2_weight"), BERTH_OPTIONAL_INPUT("w13_bias"), BERTH_OPTIONAL_INPUT("w2_bias"),
};
static const berth_op_attribute *const attributes[] = {MOE_ACTIVATION_ATTRIBUTES};

const berth_op berth_op_moe_experts = {
    .size = sizeof(berth_op),
    .name = "moe_experts",
    .class_name = "FusedMoEExperts",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
