// SPDX-License-Identifier: Apache-2.0
// The whole of a mixture of experts as one op: the schema, shape rule and reference that fused_moe,
// unquantized_fused_moe, modular_fused_moe and transformers_fused_moe share.
//
//   x             [tokens, hidden]            f32, f16 or bf16
//   w13_weight    [experts, 2 inter, hidden]  any float dtype; `inter` rows without a gate
//   w2_weight     [experts, hidden, inter]    any float dtype
//   topk_weights  [tokens, k]                 f32
//   topk_ids      [tokens, k]                 i32 or i64; −1: no expert
//   w13_bias      [experts, 2 inter]          optional, as w2_bias [experts, hidden]
//   expert_map    [all experts]               optional, i32 or i64: the number here of every
//   expert,
//                                             −1 for those of other ranks, which add nothing
//   y             like x                      the sum over k of weight · expert(x)
//
// Rounded to x's dtype: each product with its bias, the activation, and the sum, which is in f32.
// vLLM's device kernels weigh the second product before they round it, its CPU kernel rounds less:
// within the tolerance, so an implementation may. `apply_router_weight_on_input` multiplies x
// instead, before the first product and its bias.
#ifndef BERTH_KERNELS_NATIVE_MOE_ENTRY_H
#define BERTH_KERNELS_NATIVE_MOE_ENTRY_H

#include "moe_rules.h"

enum { X, W13_WEIGHT, W2_WEIGHT, TOPK_WEIGHTS, TOPK_IDS, W13_BIAS, W2_BIAS, EXPERT_MAP };

static inline berth_status moe_entry_infer(const berth_op_site *site, berth_op_result *out) {
    static const moe_inputs at = {X, W13_WEIGHT, W2_WEIGHT, W13_BIAS, W2_BIAS};
    BERTH_RULE_TRY(moe_check_weights(site, &at));
    BERTH_RULE_TRY(moe_check_routing(site, site->inputs[X]->dims[0], TOPK_WEIGHTS, TOPK_IDS));
    BERTH_RULE_TRY(moe_check_map(site, EXPERT_MAP));
    const berth_attribute *all = berth_site_attribute(site, "global_num_experts");
    const berth_value_type *map = site->inputs[EXPERT_MAP];
    const int64_t here = map ? map->dims[0].b : site->inputs[W13_WEIGHT]->dims[0].b;
    if (all->kind != BERTH_ATTRIBUTE_NONE && all->i64 != -1 && all->i64 != here) {
        return berth_rule_fail_(site, all->name, "is %lld, there are %lld", (long long)all->i64,
                                (long long)here);
    }
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

static inline uint64_t moe_entry_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    const uint64_t hidden = (uint64_t)berth_last_dim(site->inputs[X]).b;
    return moe_room_bytes(site->inputs[W13_WEIGHT], site->inputs[W2_WEIGHT]) +
           3 * hidden * sizeof(float);
}

// Adds weight · expert(x) of one choice of a token. `sum` has room for y and x behind it.
static inline void moe_add_choice(const moe_experts *experts, int64_t expert, const void *x,
                                  float weight, float *sum) {
    const int64_t hidden = experts->w2_weight->shape[1];
    const int is_first = experts->moe.is_weighted_first;
    float *y = sum + hidden;
    const void *weighted =
        moe_weighted(x, experts->dtype, hidden, is_first ? &weight : NULL, y + hidden);
    moe_run_expert(experts, expert, weighted, y);
    for (int64_t i = 0; i < hidden; ++i) {
        sum[i] += is_first ? y[i] : y[i] * weight;
    }
}

static inline berth_status moe_entry_reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *w13 = args->inputs[W13_WEIGHT];
    const int64_t hidden = berth_row_length(x);
    float *sum = berth_data(args->workspace);
    const moe_experts experts = {
        .moe = berth_moe_read(site),
        .w13_weight = w13,
        .w2_weight = args->inputs[W2_WEIGHT],
        .w13_bias = args->inputs[W13_BIAS],
        .w2_bias = args->inputs[W2_BIAS],
        .dtype = x->dtype,
        .inner = sum + 3 * hidden,
        .activated = sum + 3 * hidden + w13->shape[1],
    };
    for (int64_t token = 0; token < berth_row_count(x); ++token) {
        memset(sum, 0, (size_t)hidden * sizeof *sum);
        for (int64_t i = 0; i < args->inputs[TOPK_IDS]->shape[1]; ++i) {
            const int64_t expert = berth_moe_expert(
                args->inputs[TOPK_IDS], args->inputs[EXPERT_MAP], token, i, w13->shape[0]);
            if (expert == -2) {
                return berth_moe_no_expert(site->host, site->op->name, token);
            }
            if (expert >= 0) {
                const float *weights = berth_row(args->inputs[TOPK_WEIGHTS], token);
                moe_add_choice(&experts, expert, berth_row(x, token), weights[i], sum);
            }
        }
        berth_store(berth_row(args->outputs[0], token), x->dtype, 0, hidden, sum);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),        BERTH_INPUT("w13_weight"),
    BERTH_INPUT("w2_weight"),        BERTH_INPUT("topk_weights"),
    BERTH_INPUT("topk_ids"),         BERTH_OPTIONAL_INPUT("w13_bias"),
    BERTH_OPTIONAL_INPUT("w2_bias"), BERTH_OPTIONAL_INPUT("expert_map"),
};
static const berth_op_attribute *const attributes[] = {
    MOE_ACTIVATION_ATTRIBUTES,
    MOE_WEIGHTED_FIRST_ATTRIBUTE,
    BERTH_ABSENT_ATTRIBUTE("global_num_experts", BERTH_ATTRIBUTE_I64),
};

// The table of an entry.
#define MOE_ENTRY(op_name, op_class)                                                               \
    {                                                                                              \
        .size = sizeof(berth_op), .name = (op_name), .class_name = (op_class), .revision = 1,      \
        .inputs = inputs, .input_count = sizeof inputs / sizeof inputs[0],                         \
        .attributes = attributes, .attribute_count = sizeof attributes / sizeof attributes[0],     \
        .infer = moe_entry_infer, .reference = moe_entry_reference,                                \
        .reference_workspace = moe_entry_workspace, .is_rowwise = berth_every_row                  \
    }

#endif
