// SPDX-License-Identifier: Apache-2.0
// What the shape rules of topk_softmax and grouped_topk share: the same operands, in this order.
#ifndef BERTH_KERNELS_NATIVE_ROUTING_RULES_H
#define BERTH_KERNELS_NATIVE_ROUTING_RULES_H

#include "rules.h"

#include <routing.h>

enum { GATING_OUTPUT, E_SCORE_CORRECTION_BIAS };
enum { TOPK_WEIGHTS, TOPK_IDS };
enum { TOPK, RENORMALIZE, SCORING_FUNC, ROUTED_SCALING_FACTOR };

#define ROUTING_INPUTS                                                                             \
    BERTH_STRIDED_INPUT("gating_output"), BERTH_OPTIONAL_INPUT("e_score_correction_bias")

#define ROUTING_ATTRIBUTES                                                                         \
    BERTH_REQUIRED_ATTRIBUTE("topk", BERTH_ATTRIBUTE_I64),                                         \
        BERTH_REQUIRED_ATTRIBUTE("renormalize", BERTH_ATTRIBUTE_BOOL),                             \
        BERTH_OPTIONAL_ATTRIBUTE("scoring_func", BERTH_ATTRIBUTE_STR, .str = "softmax"),           \
        BERTH_OPTIONAL_ATTRIBUTE("routed_scaling_factor", BERTH_ATTRIBUTE_F64, .f64 = 1)

static inline int64_t routing_experts(const berth_op_site *site) {
    return site->inputs[GATING_OUTPUT]->dims[1].b;
}

static inline berth_status routing_check(const berth_op_site *site) {
    BERTH_RULE_TRY(berth_rule_float(site, GATING_OUTPUT));
    BERTH_RULE_TRY(berth_rule_rank(site, GATING_OUTPUT, 2));
    BERTH_RULE_TRY(berth_rule_width(site, GATING_OUTPUT));
    BERTH_RULE_TRY(berth_rule_float(site, E_SCORE_CORRECTION_BIAS));
    BERTH_RULE_TRY(berth_rule_rank(site, E_SCORE_CORRECTION_BIAS, 1));
    BERTH_RULE_TRY(
        berth_rule_dim(site, E_SCORE_CORRECTION_BIAS, 0, site->inputs[GATING_OUTPUT]->dims[1]));
    const int64_t k = site->attributes[TOPK]->i64;
    if (k < 1 || k > routing_experts(site)) {
        return BERTH_RULE_ATTRIBUTE(site, TOPK, "must be 1 to the %lld experts, is %lld",
                                    (long long)routing_experts(site), (long long)k);
    }
    const char *scoring = site->attributes[SCORING_FUNC]->str;
    return berth_scoring_of(scoring) != BERTH_SCORING_NONE
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, SCORING_FUNC,
                                      "must be softmax, sigmoid or sqrtsoftplus, is '%s'", scoring);
}

static inline void routing_give(const berth_op_site *site, berth_op_result *out) {
    const berth_dtype dtypes[] = {BERTH_DTYPE_F32, BERTH_DTYPE_I32};
    for (int i = 0; i < 2; ++i) {
        berth_value_type *type = berth_rule_give(out, site->inputs[GATING_OUTPUT]);
        type->dtype = dtypes[i];
        type->dims[1] = BERTH_DIM_CONST(site->attributes[TOPK]->i64);
    }
}

// The room of one token, of each as many as there are experts: scores, what is chosen by, what
// groups count, marks.
typedef struct routing_room {
    float *scores;
    float *choice;
    float *counts;
    char *chosen;
} routing_room;

static inline uint64_t routing_room_bytes(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)routing_experts(site) * (3 * sizeof(float) + 1);
}

static inline routing_room routing_room_of(const berth_op_args *args, int64_t experts) {
    float *floats = berth_data(args->workspace);
    return (routing_room){
        .scores = floats,
        .choice = floats + experts,
        .counts = floats + 2 * experts,
        .chosen = (char *)(floats + 3 * experts),
    };
}

#endif
