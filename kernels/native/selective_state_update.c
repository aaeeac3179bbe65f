// SPDX-License-Identifier: Apache-2.0
// selective_state_update: one token per row through the recurrence of selective_scan.
//
//   x, dt                [rows, dim]        f32, f16 or bf16; with heads [rows, heads, dim]
//   A                    [dim, n]           any float dtype;  with heads [heads, dim, n]
//   B, C                 [rows, n]          x's dtype;        with heads [rows, groups, n]
//   D                    [dim]              optional: D · x;  with heads [heads, dim]
//   z                    like x             optional gate: y · silu(z)
//   dt_bias              [dim]              optional;         with heads [heads, dim]
//   state_batch_indices  [rows]             optional: row i uses that state slot, otherwise slot i
//   y                    like x
//   state `state`        [slots, dim, n]    any float dtype;  with heads [slots, heads, dim, n]
//
// With d = dt + dt_bias, through softplus when `dt_softplus`:
//   h[j] ← exp(d · A[j]) · h[j] + d · x · B[j];   y = Σ h[j] · C[j]
// Head i reads group i / (heads / groups). Rows whose slot is below 0 become zero.
// All in f32, one rounding of y and of the state: vLLM's selective_state_update_ref, whose y reads
// the state after that rounding, as its device kernel does not.
#include <berth/op.h>

#include <recurrence.h>
#include <sequences.h>

#include "sequence_rules.h"

enum { X, DT, A, B, C, D, Z, DT_BIAS, STATE_BATCH_INDICES };
enum { DT_SOFTPLUS };

// ---- shape rule ---------------------------------------------------------------------------------

static berth_status check_selector(const berth_op_site *site, uint64_t input) {
    const berth_value_type *x = site->inputs[X];
    const berth_value_type *type = site->inputs[input];
    BERTH_RULE_TRY(berth_rule_same_dtype(site, input, X));
    BERTH_RULE_TRY(berth_rule_rank(site, input, x->ndim));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, x->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, input, x->ndim - 1, berth_last_dim(site->inputs[A])));
    if (x->ndim == 2) {
        return BERTH_OK;
    }
    BERTH_RULE_TRY(berth_rule_constant(site, input, 1));
    return x->dims[1].b % type->dims[1].b == 0
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must have a number of groups that divides %lld",
                                 (long long)x->dims[1].b);
}

// An input like x without its rows, and behind that the last dimension, if it is there.
static berth_status check_per_channel(const berth_op_site *site, uint64_t input, uint32_t behind) {
    const berth_value_type *x = site->inputs[X];
    BERTH_RULE_TRY(berth_rule_float(site, input));
    BERTH_RULE_TRY(berth_rule_rank(site, input, x->ndim - 1 + behind));
    for (uint32_t dim = 1; dim < x->ndim; ++dim) {
        BERTH_RULE_TRY(berth_rule_dim(site, input, dim - 1, x->dims[dim]));
    }
    return BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *x = site->inputs[X];
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, X, x->ndim == 3 ? 3 : 2));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(berth_rule_constant(site, X, 1));
    for (uint64_t input = DT; input <= Z; input += Z - DT) {
        BERTH_RULE_TRY(berth_rule_same_dtype(site, input, X));
        BERTH_RULE_TRY(berth_rule_same_shape(site, input, X));
    }
    BERTH_RULE_TRY(berth_rule_width(site, A));
    BERTH_RULE_TRY(check_per_channel(site, A, 1));
    BERTH_RULE_TRY(check_selector(site, B));
    BERTH_RULE_TRY(check_selector(site, C));
    BERTH_RULE_TRY(berth_rule_same_shape(site, C, B));
    BERTH_RULE_TRY(check_per_channel(site, D, 0));
    BERTH_RULE_TRY(check_per_channel(site, DT_BIAS, 0));
    BERTH_RULE_TRY(berth_rule_index(site, STATE_BATCH_INDICES, 1));
    BERTH_RULE_TRY(berth_rule_dim(site, STATE_BATCH_INDICES, 0, x->dims[0]));
    berth_rule_give(out, x);
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// Heads and channels in one: `channel` counts over both.
typedef struct at {
    const berth_op_args *args;
    int64_t row;
    int64_t channel;
    int64_t dim;    // channels of one head
    int64_t heads;  // 1 without heads
    int64_t groups; // 1 without heads
} at;

static float per_channel(const at *self, uint64_t input) {
    const berth_tensor *x = self->args->inputs[input];
    return x ? berth_load_at(berth_row(x, self->channel / self->dim), x->dtype,
                             self->channel % self->dim)
             : 0;
}

static float value_at(const at *self, uint64_t input) {
    const berth_tensor *x = self->args->inputs[input];
    const int64_t row = self->row * self->heads + self->channel / self->dim;
    return berth_load_at(berth_row(x, row), x->dtype, self->channel % self->dim);
}

static const void *selector(const at *self, uint64_t input) {
    const int64_t group = self->channel / self->dim / (self->heads / self->groups);
    return berth_row(self->args->inputs[input], self->row * self->groups + group);
}

static float step(const at *self, void *h, berth_dtype dtype, int is_softplus) {
    const berth_tensor *decay = self->args->inputs[A];
    const berth_dtype selected = self->args->inputs[B]->dtype;
    const void *a = berth_row(decay, self->channel);
    const void *b = selector(self, B);
    const void *c = selector(self, C);
    const float x = value_at(self, X);
    float delta = value_at(self, DT) + per_channel(self, DT_BIAS);
    delta = is_softplus ? berth_softplus(delta) : delta;
    float y = 0;
    for (int64_t j = 0; j < berth_row_length(decay); ++j) {
        const float kept = expf(delta * berth_load_at(a, decay->dtype, j));
        const float next =
            kept * berth_load_at(h, dtype, j) + delta * x * berth_load_at(b, selected, j);
        berth_store_at(h, dtype, j, next);
        y += next * berth_load_at(c, selected, j);
    }
    y += per_channel(self, D) * x;
    return self->args->inputs[Z] ? y * berth_silu(value_at(self, Z)) : y;
}

static berth_status check_state(const berth_op_site *site, const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const int64_t width = berth_row_length(args->inputs[A]);
    return x->ndim == 3 ? BERTH_STATE_CHECK(site->host, "selective_state_update", args->states[0],
                                            x->shape[1], x->shape[2], width)
                        : BERTH_STATE_CHECK(site->host, "selective_state_update", args->states[0],
                                            x->shape[1], width);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    const berth_tensor *state = args->states[0];
    const berth_tensor *slots = args->inputs[STATE_BATCH_INDICES];
    const int is_softplus = site->attributes[DT_SOFTPLUS]->i64 != 0;
    at here = {.args = args, .dim = berth_row_length(x), .heads = 1, .groups = 1};
    if (x->ndim == 3) {
        here.heads = x->shape[1];
        here.groups = args->inputs[B]->shape[1];
    }
    const int64_t channels = here.heads * here.dim;
    BERTH_RULE_TRY(check_state(site, args));
    BERTH_RULE_TRY(berth_slots_check(site->host, "selective_state_update", slots, x->shape[0],
                                     state->shape[0]));
    for (here.row = 0; here.row < x->shape[0]; ++here.row) {
        const int64_t slot = berth_slot_at(slots, here.row);
        for (here.channel = 0; here.channel < channels; ++here.channel) {
            const float value = slot < 0
                                    ? 0
                                    : step(&here, berth_row(state, slot * channels + here.channel),
                                           state->dtype, is_softplus);
            void *row = berth_row(y, here.row * here.heads + here.channel / here.dim);
            berth_store_at(row, y->dtype, here.channel % here.dim, value);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_STRIDED_INPUT("dt"),
    BERTH_INPUT("A"),
    BERTH_STRIDED_INPUT("B"),
    BERTH_STRIDED_INPUT("C"),
    BERTH_OPTIONAL_INPUT("D"),
    BERTH_OPTIONAL_STRIDED_INPUT("z"),
    BERTH_OPTIONAL_INPUT("dt_bias"),
    BERTH_OPTIONAL_INPUT("state_batch_indices"),
};
static const berth_op_argument *const states[] = {BERTH_INPUT("state")};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("dt_softplus", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
};

const berth_op berth_op_selective_state_update = {
    .size = sizeof(berth_op),
    .name = "selective_state_update",
    .class_name = "SelectiveStateUpdate",
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
