// SPDX-License-Identifier: Apache-2.0
// What the MoE ops share: operands, shape rules, and the computation of one expert for one token.
#ifndef BERTH_KERNELS_NATIVE_MOE_RULES_H
#define BERTH_KERNELS_NATIVE_MOE_RULES_H

#include "rules.h"

#include <moe.h>

// ---- schema -------------------------------------------------------------------------------------

#define MOE_ACTIVATION_ATTRIBUTES                                                                  \
    BERTH_OPTIONAL_ATTRIBUTE("activation", BERTH_ATTRIBUTE_STR, .str = "silu"),                    \
        BERTH_OPTIONAL_ATTRIBUTE("swiglu_limit", BERTH_ATTRIBUTE_F64, .f64 = 7),                   \
        BERTH_OPTIONAL_ATTRIBUTE("swiglu_alpha", BERTH_ATTRIBUTE_F64, .f64 = 1.702),               \
        BERTH_OPTIONAL_ATTRIBUTE("swiglu_beta", BERTH_ATTRIBUTE_F64, .f64 = 1),                    \
        BERTH_OPTIONAL_ATTRIBUTE("situ_beta", BERTH_ATTRIBUTE_F64, .f64 = 1),                      \
        BERTH_ABSENT_ATTRIBUTE("situ_linear_beta", BERTH_ATTRIBUTE_F64)

#define MOE_WEIGHTED_FIRST_ATTRIBUTE                                                               \
    BERTH_OPTIONAL_ATTRIBUTE("apply_router_weight_on_input", BERTH_ATTRIBUTE_BOOL, .i64 = 0)

// ---- shape rules --------------------------------------------------------------------------------

// Where an op has the weights of its experts among its inputs.
typedef struct moe_inputs {
    uint64_t x;
    uint64_t w13_weight;
    uint64_t w2_weight;
    uint64_t w13_bias;
    uint64_t w2_bias;
} moe_inputs;

static inline berth_status moe_check_activation(const berth_op_site *site) {
    const berth_attribute *given = berth_site_attribute(site, "activation");
    return berth_moe_activation(given->str) != BERTH_MOE_NONE
               ? BERTH_OK
               : berth_rule_fail_(site, "activation", "is '%s', which no expert knows", given->str);
}

static inline berth_status moe_check_biases(const berth_op_site *site, const moe_inputs *at) {
    const berth_value_type *w13 = site->inputs[at->w13_weight];
    const berth_value_type *w2 = site->inputs[at->w2_weight];
    const uint64_t biases[] = {at->w13_bias, at->w2_bias};
    const berth_value_type *const weights[] = {w13, w2};
    for (int i = 0; i < 2; ++i) {
        BERTH_RULE_TRY(berth_rule_float(site, biases[i]));
        BERTH_RULE_TRY(berth_rule_rank(site, biases[i], 2));
        BERTH_RULE_TRY(berth_rule_dim(site, biases[i], 0, w13->dims[0]));
        BERTH_RULE_TRY(berth_rule_dim(site, biases[i], 1, weights[i]->dims[1]));
    }
    return BERTH_OK;
}

static inline berth_status moe_check_weights(const berth_op_site *site, const moe_inputs *at) {
    const uint64_t matrices[] = {at->w13_weight, at->w2_weight};
    BERTH_RULE_TRY(moe_check_activation(site));
    BERTH_RULE_TRY(berth_rule_float(site, at->x));
    BERTH_RULE_TRY(berth_rule_rank(site, at->x, 2));
    BERTH_RULE_TRY(berth_rule_width(site, at->x));
    for (int i = 0; i < 2; ++i) {
        BERTH_RULE_TRY(berth_rule_float(site, matrices[i]));
        BERTH_RULE_TRY(berth_rule_rank(site, matrices[i], 3));
        for (uint32_t dim = 0; dim < 3; ++dim) {
            BERTH_RULE_TRY(berth_rule_constant(site, matrices[i], dim));
        }
    }
    const berth_dim hidden = berth_last_dim(site->inputs[at->x]);
    const berth_value_type *w2 = site->inputs[at->w2_weight];
    const int gates =
        1 + berth_moe_has_gate(berth_moe_activation(berth_site_attribute(site, "activation")->str));
    BERTH_RULE_TRY(berth_rule_dim(site, at->w13_weight, 2, hidden));
    BERTH_RULE_TRY(berth_rule_dim(site, at->w2_weight, 0, site->inputs[at->w13_weight]->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, at->w2_weight, 1, hidden));
    BERTH_RULE_TRY(berth_rule_dim(site, at->w13_weight, 1, BERTH_DIM_CONST(gates * w2->dims[2].b)));
    return moe_check_biases(site, at);
}

// topk_weights and topk_ids of as many tokens as `tokens`, one weight an id.
static inline berth_status moe_check_routing(const berth_op_site *site, berth_dim tokens,
                                             uint64_t topk_weights, uint64_t topk_ids) {
    BERTH_RULE_TRY(berth_rule_f32(site, topk_weights));
    BERTH_RULE_TRY(berth_rule_integer(site, topk_ids));
    BERTH_RULE_TRY(berth_rule_rank(site, topk_ids, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, topk_ids, 0, tokens));
    BERTH_RULE_TRY(berth_rule_constant(site, topk_ids, 1));
    BERTH_RULE_TRY(berth_rule_same_shape(site, topk_weights, topk_ids));
    const berth_attribute *is_first = berth_site_attribute(site, "apply_router_weight_on_input");
    return is_first->i64 && site->inputs[topk_ids]->dims[1].b != 1
               ? berth_rule_fail_(site, is_first->name, "needs one expert a token")
               : BERTH_OK;
}

static inline berth_status moe_check_map(const berth_op_site *site, uint64_t expert_map) {
    BERTH_RULE_TRY(berth_rule_integer(site, expert_map));
    BERTH_RULE_TRY(berth_rule_rank(site, expert_map, 1));
    return berth_rule_width(site, expert_map);
}

// ---- experts and their tokens -------------------------------------------------------------------

// The weights of experts, and room for one of them at one token.
typedef struct moe_experts {
    berth_moe moe;
    const berth_tensor *w13_weight;
    const berth_tensor *w2_weight;
    const berth_tensor *w13_bias;
    const berth_tensor *w2_bias;
    berth_dtype dtype; // of x
    float *inner;      // [rows of w13]
    float *activated;  // [columns of w2], rounded to the dtype
} moe_experts;

static inline uint64_t moe_room_bytes(const berth_value_type *w13, const berth_value_type *w2) {
    return (uint64_t)(w13->dims[1].b + w2->dims[2].b) * sizeof(float);
}

// Expert `expert` of a weight, as a matrix's rows.
static inline const void *moe_row(const berth_tensor *weight, int64_t expert, int64_t row) {
    return berth_row(weight, expert * weight->shape[1] + row);
}

// Row `row` of an expert's matrix times x, plus the bias, as a store would keep it.
static inline float moe_product(const moe_experts *self, int64_t expert, int64_t row, int is_second,
                                const void *x) {
    const berth_tensor *weight = is_second ? self->w2_weight : self->w13_weight;
    const berth_tensor *bias = is_second ? self->w2_bias : self->w13_bias;
    const float sum =
        berth_dot(x, self->dtype, moe_row(weight, expert, row), weight->dtype, weight->shape[2]);
    const float start = bias ? berth_load_at(berth_row(bias, expert), bias->dtype, row) : 0;
    return berth_round_to(self->dtype, sum + start);
}

// y [hidden] of an expert for x [hidden], which has the dtype.
static inline void moe_run_expert(const moe_experts *self, int64_t expert, const void *x,
                                  float *y) {
    const int64_t inner = self->w13_weight->shape[1];
    const int64_t width = self->w2_weight->shape[2];
    const int is_in_turns = self->moe.activation == BERTH_MOE_SWIGLUOAI;
    for (int64_t row = 0; row < inner; ++row) {
        self->inner[row] = moe_product(self, expert, row, 0, x);
    }
    for (int64_t i = 0; i < width; ++i) {
        const float gate = self->inner[is_in_turns ? 2 * i : i];
        const float up = inner == width ? 0 : self->inner[is_in_turns ? 2 * i + 1 : width + i];
        berth_store_at(self->activated, self->dtype, i, berth_moe_activate(&self->moe, gate, up));
    }
    for (int64_t row = 0; row < self->w2_weight->shape[1]; ++row) {
        y[row] = moe_product(self, expert, row, 1, self->activated);
    }
}

// x, or x times a weight that is rounded to x's dtype before: `room` [hidden] then holds it.
static inline const void *moe_weighted(const void *x, berth_dtype dtype, int64_t count,
                                       const float *weight, void *room) {
    for (int64_t i = 0; weight && i < count; ++i) {
        const float factor = berth_round_to(dtype, *weight);
        berth_store_at(room, dtype, i, berth_load_at(x, dtype, i) * factor);
    }
    return weight ? room : x;
}

#endif
