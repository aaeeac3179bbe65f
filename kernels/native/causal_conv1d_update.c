// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update: one new row per sequence through causal_conv1d, shifted into its state.
//
//   x                   [n, dim]       f32, f16 or bf16
//   weight              [dim, width]   any float dtype
//   bias                [dim]          optional
//   conv_state_indices  [n]            optional: row i uses that state slot, otherwise slot i
//   y                   like x
//   state conv_state    [slots, dim, width − 1]
//
// y = act(bias + Σ weight[k] · window[k]), the window being the state and then x; `activation`
// silu, swish or "". Rows whose slot is below 0 become zero. Sum in f32, rounded before the
// activation and again after it: vLLM's causal_conv1d_update_torch. Its device kernel rounds once.
#include <berth/op.h>

#include <recurrence.h>
#include <sequences.h>

#include "sequence_rules.h"

enum { X, WEIGHT, BIAS, CONV_STATE_INDICES };
enum { ACTIVATION };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, X, 2));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(berth_rule_float(site, WEIGHT));
    BERTH_RULE_TRY(berth_rule_rank(site, WEIGHT, 2));
    BERTH_RULE_TRY(berth_rule_width(site, WEIGHT));
    BERTH_RULE_TRY(berth_rule_dim(site, WEIGHT, 0, berth_last_dim(site->inputs[X])));
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, BIAS, berth_last_dim(site->inputs[X])));
    BERTH_RULE_TRY(berth_rule_index(site, CONV_STATE_INDICES, 1));
    BERTH_RULE_TRY(berth_rule_dim(site, CONV_STATE_INDICES, 0, site->inputs[X]->dims[0]));
    BERTH_RULE_TRY(berth_rule_activation(site, ACTIVATION));
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

// One channel of one row; `state` is its window without the new value: [width − 1].
static float step(const berth_op_args *args, int64_t index, float x, void *state) {
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *bias = args->inputs[BIAS];
    const berth_dtype dtype = args->states[0]->dtype;
    const void *taps = berth_row(weight, index);
    const int64_t kept = weight->shape[1] - 1;
    float sum = bias ? berth_load_at(berth_data(bias), bias->dtype, index) : 0;
    for (int64_t k = 0; k < kept; ++k) {
        sum += berth_load_at(taps, weight->dtype, k) * berth_load_at(state, dtype, k);
        berth_store_at(state, dtype, k, k + 1 < kept ? berth_load_at(state, dtype, k + 1) : x);
    }
    return sum + berth_load_at(taps, weight->dtype, kept) * x;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    const berth_tensor *slots = args->inputs[CONV_STATE_INDICES];
    const berth_tensor *state = args->states[0];
    const int is_silu = site->attributes[ACTIVATION]->str[0] != 0;
    BERTH_RULE_TRY(BERTH_STATE_CHECK(site->host, "causal_conv1d_update", state, x->shape[1],
                                     berth_row_length(args->inputs[WEIGHT]) - 1));
    BERTH_RULE_TRY(
        berth_slots_check(site->host, "causal_conv1d_update", slots, x->shape[0], state->shape[0]));
    for (int64_t row = 0; row < x->shape[0]; ++row) {
        const int64_t slot = berth_slot_at(slots, row);
        for (int64_t i = 0; i < x->shape[1]; ++i) {
            float value = 0;
            if (slot >= 0) {
                value = step(args, i, berth_load_at(berth_row(x, row), x->dtype, i),
                             berth_row(state, slot * state->shape[1] + i));
                value = berth_round_to(y->dtype, value);
            }
            berth_store_at(berth_row(y, row), y->dtype, i, is_silu ? berth_silu(value) : value);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_OPTIONAL_INPUT("bias"),
    BERTH_OPTIONAL_INPUT("conv_state_indices"),
};
static const berth_op_argument *const states[] = {BERTH_INPUT("conv_state")};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("activation", BERTH_ATTRIBUTE_STR, .str = ""),
};

const berth_op berth_op_causal_conv1d_update = {
    .size = sizeof(berth_op),
    .name = "causal_conv1d_update",
    .class_name = "CausalConv1dUpdate",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .states = states,
    .state_count = sizeof states / sizeof states[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
};
