// SPDX-License-Identifier: Apache-2.0
// moe_prepare: brings the tokens of every expert together, the first of the three steps of
// modular_fused_moe. Where experts live on several ranks, this is what sends tokens to them.
//
//   x             [tokens, hidden]      f32, f16 or bf16
//   topk_weights  [tokens, k]           f32
//   topk_ids      [tokens, k]           i32 or i64; −1: no expert
//   expert_map    [all experts]         optional, i32 or i64: the number here of each, −1: not here
//   expert_x      [tokens · k, hidden]  rows of x by expert, in a token's order; behind them zeros
//   expert_first  [num_local_experts + 1]  i32, the first row of each expert, and the end of all
//   slots         [tokens, k]           i32, the row of every choice, −1: none
//
// `apply_router_weight_on_input`: the rows are multiplied by their weight.
#include <berth/op.h>

#include "moe_rules.h"

enum { X, TOPK_WEIGHTS, TOPK_IDS, EXPERT_MAP };
enum { EXPERT_X, EXPERT_FIRST, SLOTS };
enum { NUM_LOCAL_EXPERTS, APPLY_ROUTER_WEIGHT_ON_INPUT };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *x = site->inputs[X];
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, X, 2));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(moe_check_routing(site, x->dims[0], TOPK_WEIGHTS, TOPK_IDS));
    BERTH_RULE_TRY(moe_check_map(site, EXPERT_MAP));
    const int64_t experts = site->attributes[NUM_LOCAL_EXPERTS]->i64;
    if (experts < 1 || experts > INT32_MAX) {
        return BERTH_RULE_ATTRIBUTE(site, NUM_LOCAL_EXPERTS, "must be at least 1, is %lld",
                                    (long long)experts);
    }
    if (x->dims[0].c != 1) {
        return BERTH_RULE_FAIL(site, X, "must have whole tokens as rows");
    }
    const int64_t k = site->inputs[TOPK_IDS]->dims[1].b;
    berth_dim *rows = &berth_rule_give(out, x)->dims[0];
    rows->a *= k;
    rows->b *= k;
    berth_value_type *first = berth_rule_give(out, x);
    first->dtype = BERTH_DTYPE_I32;
    first->ndim = 1;
    first->dims[0] = BERTH_DIM_CONST(experts + 1);
    berth_rule_give(out, site->inputs[TOPK_IDS])->dtype = BERTH_DTYPE_I32;
    return BERTH_OK;
}

// Fills in expert_first: counts one further on, then sums.
static berth_status count(const berth_op_site *site, const berth_op_args *args, int64_t experts) {
    const berth_tensor *ids = args->inputs[TOPK_IDS];
    int32_t *first = berth_data(args->outputs[EXPERT_FIRST]);
    memset(first, 0, (size_t)(experts + 1) * sizeof *first);
    for (int64_t i = 0; i < ids->shape[0] * ids->shape[1]; ++i) {
        const int64_t expert = berth_moe_expert(ids, args->inputs[EXPERT_MAP], i / ids->shape[1],
                                                i % ids->shape[1], experts);
        if (expert == -2) {
            return berth_moe_no_expert(site->host, site->op->name, i / ids->shape[1]);
        }
        first[expert + 1] += expert >= 0;
    }
    for (int64_t expert = 0; expert < experts; ++expert) {
        first[expert + 1] += first[expert];
    }
    return BERTH_OK;
}

static void place(const berth_op_site *site, const berth_op_args *args, int64_t token, int64_t i,
                  int32_t slot) {
    const berth_tensor *x = args->inputs[X];
    const float *weights = berth_row(args->inputs[TOPK_WEIGHTS], token);
    const int64_t width = berth_row_length(x);
    void *to = berth_row(args->outputs[EXPERT_X], slot);
    ((int32_t *)berth_row(args->outputs[SLOTS], token))[i] = slot;
    if (site->attributes[APPLY_ROUTER_WEIGHT_ON_INPUT]->i64) {
        (void)moe_weighted(berth_row(x, token), x->dtype, width, &weights[i], to);
    } else {
        memcpy(to, berth_row(x, token), (size_t)width * BERTH_DTYPE_BITS(x->dtype) / 8);
    }
}

// expert_first serves as the next free row of every expert and is moved back at the end.
static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *ids = args->inputs[TOPK_IDS];
    const berth_tensor *rows = args->outputs[EXPERT_X];
    const int64_t experts = site->attributes[NUM_LOCAL_EXPERTS]->i64;
    const int64_t k = ids->shape[1];
    int32_t *first = berth_data(args->outputs[EXPERT_FIRST]);
    BERTH_RULE_TRY(count(site, args, experts));
    const int64_t used = first[experts];
    for (int64_t i = 0; i < ids->shape[0] * k; ++i) {
        const int64_t expert =
            berth_moe_expert(ids, args->inputs[EXPERT_MAP], i / k, i % k, experts);
        if (expert >= 0) {
            place(site, args, i / k, i % k, first[expert]++);
        } else {
            ((int32_t *)berth_row(args->outputs[SLOTS], i / k))[i % k] = -1;
        }
    }
    memmove(first + 1, first, (size_t)experts * sizeof *first);
    first[0] = 0;
    for (int64_t row = used; row < berth_row_count(rows); ++row) {
        memset(berth_row(rows, row), 0,
               (size_t)berth_row_length(rows) * BERTH_DTYPE_BITS(rows->dtype) / 8);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("topk_weights"),
    BERTH_INPUT("topk_ids"),
    BERTH_OPTIONAL_INPUT("expert_map"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("num_local_experts", BERTH_ATTRIBUTE_I64),
    MOE_WEIGHTED_FIRST_ATTRIBUTE,
};

const berth_op berth_op_moe_prepare = {
    .size = sizeof(berth_op),
    .name = "moe_prepare",
    .class_name = "MoEPrepare",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
};
