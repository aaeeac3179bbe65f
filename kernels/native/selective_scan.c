// SPDX-License-Identifier: Apache-2.0
// selective_scan: Mamba's recurrence over the tokens of each sequence, every channel with a state
// of its own whose decay and input depend on the token.
//
//   u, delta           [dim, tokens]            f32, f16 or bf16; `channels_last`: [tokens, dim]
//   A                  [dim, n]                 any float dtype, usually below 0
//   B, C               [groups, n, tokens]      u's dtype; `channels_last`: [tokens, groups, n], or
//                                               [tokens, n] for one group
//   D                  [dim]                    optional: adds D · u
//   z                  like u                   optional gate: y · silu(z)
//   delta_bias         [dim]                    optional
//   query_start_loc    [s + 1]                  optional, see kernels/sequences.h
//   cache_indices      [s]                      optional: state slot of each sequence
//   has_initial_state  [s] bool                 optional
//   y                  like u
//   state ssm_states   [slots, dim, n]          any float dtype
//
// With d = delta + delta_bias, through softplus when `delta_softplus`:
//   h[j] ← exp(d · A[j]) · h[j] + d · u · B[j];   y = Σ h[j] · C[j]
// Channel i reads group i / (dim / groups). Slots that no sequence names stay as they are; of one
// below 0 the rows become zero.
// All in f32, one rounding of y and of the state at the end: vLLM's selective_scan_ref. Its device
// kernel sums in a tree and takes exp2 of a scaled A.
#include <berth/op.h>

#include <recurrence.h>
#include <sequences.h>

#include "sequence_rules.h"

enum { U, DELTA, A, B, C, D, Z, DELTA_BIAS, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE };
enum { DELTA_SOFTPLUS, CHANNELS_LAST };

// ---- shape rule ---------------------------------------------------------------------------------

// B or C: which dimensions are groups, state and tokens follows from the layout.
static berth_status check_selector(const berth_op_site *site, uint64_t input, berth_dim tokens,
                                   berth_dim dim) {
    const berth_value_type *type = site->inputs[input];
    const int is_last = site->attributes[CHANNELS_LAST]->i64 != 0;
    const int is_flat = is_last && type->ndim == 2;
    BERTH_RULE_TRY(berth_rule_same_dtype(site, input, U));
    BERTH_RULE_TRY(berth_rule_rank(site, input, is_flat ? 2 : 3));
    const uint32_t group = is_last ? 1 : 0;
    const uint32_t state = is_last ? type->ndim - 1 : 1;
    BERTH_RULE_TRY(berth_rule_dim(site, input, is_last ? 0 : 2, tokens));
    BERTH_RULE_TRY(berth_rule_dim(site, input, state, site->inputs[A]->dims[1]));
    if (is_flat) {
        return BERTH_OK;
    }
    BERTH_RULE_TRY(berth_rule_constant(site, input, group));
    return dim.b % type->dims[group].b == 0
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must have a number of groups that divides %lld",
                                 (long long)dim.b);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const uint32_t channels = site->attributes[CHANNELS_LAST]->i64 ? 1 : 0;
    BERTH_RULE_TRY(berth_rule_float(site, U));
    BERTH_RULE_TRY(berth_rule_rank(site, U, 2));
    BERTH_RULE_TRY(berth_rule_constant(site, U, channels));
    const berth_dim dim = site->inputs[U]->dims[channels];
    for (uint64_t input = DELTA; input <= Z; input += Z - DELTA) {
        BERTH_RULE_TRY(berth_rule_same_dtype(site, input, U));
        BERTH_RULE_TRY(berth_rule_same_shape(site, input, U));
    }
    BERTH_RULE_TRY(berth_rule_float(site, A));
    BERTH_RULE_TRY(berth_rule_rank(site, A, 2));
    BERTH_RULE_TRY(berth_rule_width(site, A));
    BERTH_RULE_TRY(berth_rule_dim(site, A, 0, dim));
    for (uint64_t input = B; input <= C; ++input) {
        BERTH_RULE_TRY(check_selector(site, input, site->inputs[U]->dims[1 - channels], dim));
    }
    BERTH_RULE_TRY(berth_rule_same_shape(site, C, B));
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, D, dim));
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, DELTA_BIAS, dim));
    BERTH_RULE_TRY(berth_rule_sequences(site, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE));
    berth_rule_give(out, site->inputs[U]);
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// One channel of a call.
typedef struct channel {
    const berth_op_args *args;
    int is_last;
    int is_softplus;
    int64_t index;
    int64_t group;
    int64_t states; // n
} channel;

// u, delta, z or y of this channel.
static const void *row_of(const channel *self, const berth_tensor *x, int64_t token,
                          int64_t *out_column) {
    *out_column = self->is_last ? self->index : token;
    return berth_row(x, self->is_last ? token : self->index);
}

static float value_at(const channel *self, uint64_t input, int64_t token) {
    const berth_tensor *x = self->args->inputs[input];
    int64_t column = 0;
    const void *row = row_of(self, x, token, &column);
    return berth_load_at(row, x->dtype, column);
}

// B or C of the channel's group at state j.
static float selector_at(const channel *self, uint64_t input, int64_t token, int64_t j) {
    const berth_tensor *x = self->args->inputs[input];
    if (!self->is_last) {
        return berth_load_at(berth_row(x, self->group * self->states + j), x->dtype, token);
    }
    const int64_t groups = x->ndim == 3 ? x->shape[1] : 1;
    return berth_load_at(berth_row(x, token * groups + self->group), x->dtype, j);
}

static float per_channel(const channel *self, uint64_t input) {
    const berth_tensor *x = self->args->inputs[input];
    return x ? berth_load_at(berth_data(x), x->dtype, self->index) : 0;
}

// One token: renews h [n], returns y.
static float step(const channel *self, int64_t token, float *h) {
    const berth_tensor *decay = self->args->inputs[A];
    const float u = value_at(self, U, token);
    float delta = value_at(self, DELTA, token) + per_channel(self, DELTA_BIAS);
    delta = self->is_softplus ? berth_softplus(delta) : delta;
    float y = 0;
    for (int64_t j = 0; j < self->states; ++j) {
        const float a = berth_load_at(berth_row(decay, self->index), decay->dtype, j);
        h[j] = expf(delta * a) * h[j] + delta * u * selector_at(self, B, token, j);
        y += h[j] * selector_at(self, C, token, j);
    }
    y += per_channel(self, D) * u;
    return self->args->inputs[Z] ? y * berth_silu(value_at(self, Z, token)) : y;
}

static void scan(const channel *self, const berth_sequence *sequence, float *h) {
    const berth_tensor *state = self->args->states[0];
    const berth_tensor *y = self->args->outputs[0];
    void *kept =
        berth_row(state, (sequence->slot < 0 ? 0 : sequence->slot) * state->shape[1] + self->index);
    memset(h, 0, (size_t)self->states * sizeof *h);
    if (sequence->has_state && sequence->slot >= 0) {
        berth_load(kept, state->dtype, 0, self->states, h);
    }
    for (int64_t token = sequence->first; token < sequence->end; ++token) {
        int64_t column = 0;
        void *row = (void *)row_of(self, y, token, &column);
        berth_store_at(row, y->dtype, column, sequence->slot < 0 ? 0 : step(self, token, h));
    }
    if (sequence->slot >= 0) {
        berth_store(kept, state->dtype, 0, self->states, h);
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)site->inputs[A]->dims[1].b * sizeof(float);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *u = args->inputs[U];
    const berth_tensor *b = args->inputs[B];
    const int is_last = site->attributes[CHANNELS_LAST]->i64 != 0;
    const int64_t dim = args->inputs[A]->shape[0];
    const int64_t width = args->inputs[A]->shape[1];
    const int64_t groups = !is_last ? b->shape[0] : b->ndim == 3 ? b->shape[1] : 1;
    berth_sequences sequences = {
        .host = site->host,
        .op = "selective_scan",
        .cache_group = site->cache_group,
        .starts = args->inputs[QUERY_START_LOC],
        .slots = args->inputs[CACHE_INDICES],
        .has_state = args->inputs[HAS_INITIAL_STATE],
    };
    BERTH_RULE_TRY(BERTH_STATE_CHECK(site->host, sequences.op, args->states[0], dim, width));
    BERTH_RULE_TRY(berth_sequences_open(&sequences, args->batch, u->shape[is_last ? 0 : 1],
                                        args->states[0]->shape[0]));
    channel at = {
        .args = args,
        .is_last = is_last,
        .is_softplus = site->attributes[DELTA_SOFTPLUS]->i64 != 0,
        .states = width,
    };
    for (int64_t i = 0; i < sequences.count; ++i) {
        const berth_sequence sequence = berth_sequence_at(&sequences, i);
        for (at.index = 0; at.index < dim && sequence.end > sequence.first; ++at.index) {
            at.group = at.index / (dim / groups);
            scan(&at, &sequence, berth_data(args->workspace));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("u"),
    BERTH_STRIDED_INPUT("delta"),
    BERTH_INPUT("A"),
    BERTH_STRIDED_INPUT("B"),
    BERTH_STRIDED_INPUT("C"),
    BERTH_OPTIONAL_INPUT("D"),
    BERTH_OPTIONAL_STRIDED_INPUT("z"),
    BERTH_OPTIONAL_INPUT("delta_bias"),
    BERTH_OPTIONAL_INPUT("query_start_loc"),
    BERTH_OPTIONAL_INPUT("cache_indices"),
    BERTH_OPTIONAL_INPUT("has_initial_state"),
};
static const berth_op_argument *const states[] = {BERTH_INPUT("ssm_states")};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("delta_softplus", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("channels_last", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
};

const berth_op berth_op_selective_scan = {
    .size = sizeof(berth_op),
    .name = "selective_scan",
    .class_name = "SelectiveScan",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .states = states,
    .state_count = sizeof states / sizeof states[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
