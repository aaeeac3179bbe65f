// SPDX-License-Identifier: Apache-2.0
// causal_conv1d: every channel of a sequence convolved with its own taps, so that a row sees itself
// and the width − 1 rows before it; those before the call stand in the state.
//
//   x                  [dim, tokens]         f32, f16 or bf16; with `channels_last` [tokens, dim]
//   weight             [dim, width]          any float dtype; also [dim, 1, width]
//   bias               [dim]                 optional
//   query_start_loc    [n + 1]               optional, see kernels/sequences.h
//   cache_indices      [n]                   optional: state slot of each sequence
//   has_initial_state  [n] bool              optional
//   y                  like x
//   state conv_states  [slots, dim, width − 1], with `channels_last` [slots, width − 1, dim]
//
// y[t] = act(bias + Σ weight[k] · x[t − width + 1 + k]); `activation` silu, swish or "". The state
// keeps the last width − 1 rows. Slots that no sequence names stay as they are; a slot below 0 is
// passed over, its rows become zero.
// Sum in f32, rounded before the activation and again after it: vLLM's causal_conv1d_fn_cpu. Its
// device kernel rounds once and forms each product in x's dtype. It passes over the null block 0,
// not −1: here slot 0 is like any other, because the engine never hands out block 0.
#include <berth/op.h>

#include <recurrence.h>
#include <sequences.h>

#include "sequence_rules.h"

enum { X, WEIGHT, BIAS, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE };
enum { ACTIVATION, CHANNELS_LAST };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *weight = site->inputs[WEIGHT];
    const uint32_t channels = site->attributes[CHANNELS_LAST]->i64 ? 1 : 0;
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, X, 2));
    BERTH_RULE_TRY(berth_rule_constant(site, X, channels));
    const berth_dim dim = site->inputs[X]->dims[channels];
    BERTH_RULE_TRY(berth_rule_float(site, WEIGHT));
    BERTH_RULE_TRY(berth_rule_width(site, WEIGHT));
    BERTH_RULE_TRY(berth_rule_rank(site, WEIGHT, weight->ndim == 3 ? 3 : 2));
    BERTH_RULE_TRY(berth_rule_dim(site, WEIGHT, 0, dim));
    if (weight->ndim == 3) {
        BERTH_RULE_TRY(berth_rule_dim(site, WEIGHT, 1, BERTH_DIM_CONST(1)));
    }
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, BIAS, dim));
    BERTH_RULE_TRY(berth_rule_sequences(site, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE));
    BERTH_RULE_TRY(berth_rule_activation(site, ACTIVATION));
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

// One channel of one sequence, whatever the layout: where an element of a row, or of the state, is.
typedef struct channel {
    const berth_tensor *x;
    const berth_tensor *y;
    const berth_tensor *state;
    const float *weight; // [width]
    int64_t width;
    int64_t index;
    int64_t slot;
    int has_state;
    int is_last; // channels_last
} channel;

static void *at(const berth_tensor *tensor, int64_t row, int64_t column, int64_t *out_index) {
    *out_index = column;
    return berth_row(tensor, row);
}

static void *element(const channel *self, const berth_tensor *x, int64_t token, int64_t *index) {
    return self->is_last ? at(x, token, self->index, index) : at(x, self->index, token, index);
}

static void *past(const channel *self, int64_t age, int64_t *index) {
    const int64_t rows = self->state->shape[1];
    return self->is_last ? at(self->state, self->slot * rows + age, self->index, index)
                         : at(self->state, self->slot * rows + self->index, age, index);
}

// The input at `time`, counted from the first new row `first`; below 0 from the state.
static float input_at(const channel *self, int64_t first, int64_t time) {
    int64_t index = 0;
    if (time >= 0) {
        const void *row = element(self, self->x, first + time, &index);
        return berth_load_at(row, self->x->dtype, index);
    }
    if (!self->has_state) {
        return 0;
    }
    const void *row = past(self, self->width - 1 + time, &index);
    return berth_load_at(row, self->state->dtype, index);
}

static void convolve(const channel *self, const berth_sequence *sequence, float bias, int is_silu) {
    const berth_dtype dtype = self->y->dtype;
    for (int64_t token = sequence->first; token < sequence->end; ++token) {
        float sum = bias;
        for (int64_t k = 0; k < self->width && self->slot >= 0; ++k) {
            const int64_t time = token - sequence->first - self->width + 1 + k;
            sum += self->weight[k] * input_at(self, sequence->first, time);
        }
        sum = self->slot < 0 ? 0 : berth_round_to(dtype, sum);
        int64_t index = 0;
        void *row = element(self, self->y, token, &index);
        berth_store_at(row, dtype, index, is_silu ? berth_silu(sum) : sum);
    }
}

// Reads ahead of where it writes, since there is at least one new row.
static void keep(const channel *self, const berth_sequence *sequence) {
    const int64_t count = sequence->end - sequence->first;
    for (int64_t age = 0; age < self->width - 1; ++age) {
        int64_t index = 0;
        const float value = input_at(self, sequence->first, count - self->width + 1 + age);
        void *row = past(self, age, &index);
        berth_store_at(row, self->state->dtype, index, value);
    }
}

static void run_sequence(const berth_op_site *site, const berth_op_args *args,
                         const berth_sequence *sequence) {
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *bias = args->inputs[BIAS];
    const int is_silu = site->attributes[ACTIVATION]->str[0] != 0;
    float *taps = berth_data(args->workspace);
    channel self = {
        .x = args->inputs[X],
        .y = args->outputs[0],
        .state = args->states[0],
        .weight = taps,
        .width = berth_row_length(weight),
        .slot = sequence->slot,
        .has_state = sequence->has_state,
        .is_last = site->attributes[CHANNELS_LAST]->i64 != 0,
    };
    for (int64_t i = 0; i < weight->shape[0]; ++i) {
        self.index = i;
        berth_load(berth_row(weight, i), weight->dtype, 0, self.width, taps);
        convolve(&self, sequence, bias ? berth_load_at(berth_data(bias), bias->dtype, i) : 0,
                 is_silu);
        if (sequence->slot >= 0) {
            keep(&self, sequence);
        }
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)berth_last_dim(site->inputs[WEIGHT]).b * sizeof(float);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const int is_last = site->attributes[CHANNELS_LAST]->i64 != 0;
    berth_sequences sequences = {
        .host = site->host,
        .op = "causal_conv1d",
        .cache_group = site->cache_group,
        .starts = args->inputs[QUERY_START_LOC],
        .slots = args->inputs[CACHE_INDICES],
        .has_state = args->inputs[HAS_INITIAL_STATE],
    };
    const int64_t dim = args->inputs[WEIGHT]->shape[0];
    const int64_t kept = berth_row_length(args->inputs[WEIGHT]) - 1;
    BERTH_RULE_TRY(BERTH_STATE_CHECK(site->host, sequences.op, args->states[0],
                                     is_last ? kept : dim, is_last ? dim : kept));
    BERTH_RULE_TRY(berth_sequences_open(&sequences, args->batch,
                                        args->inputs[X]->shape[is_last ? 0 : 1],
                                        args->states[0]->shape[0]));
    for (int64_t i = 0; i < sequences.count; ++i) {
        const berth_sequence sequence = berth_sequence_at(&sequences, i);
        if (sequence.end > sequence.first) {
            run_sequence(site, args, &sequence);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_OPTIONAL_INPUT("bias"),
    BERTH_OPTIONAL_INPUT("query_start_loc"),
    BERTH_OPTIONAL_INPUT("cache_indices"),
    BERTH_OPTIONAL_INPUT("has_initial_state"),
};
static const berth_op_argument *const states[] = {BERTH_INPUT("conv_states")};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("activation", BERTH_ATTRIBUTE_STR, .str = ""),
    BERTH_OPTIONAL_ATTRIBUTE("channels_last", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
};

const berth_op berth_op_causal_conv1d = {
    .size = sizeof(berth_op),
    .name = "causal_conv1d",
    .class_name = "CausalConv1d",
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
