// SPDX-License-Identifier: Apache-2.0
// lightning_attention: linear attention whose memory fades. Every head keeps the sum of all
// key ⊗ value so far; each token lets it fade by e^−ed, adds its own and reads it with its query.
//
//   q, k  [batch, heads, tokens, d]  f32, f16 or bf16
//   v     [batch, heads, tokens, e]  q's dtype
//   ed    [heads]                    any float dtype: how fast a head fades; also [heads, 1, 1]
//   y     like v
//   state kv_history  [batch, heads, d, e], any float dtype: the memory of row b of the batch
//
// No softmax and no scale; a token's own part has not faded. All in f32, one rounding of y: the
// reference of vLLM's tests. Its device kernels work in blocks of 256 tokens, decode in f32.
#include <berth/op.h>

#include <sequences.h>

#include "sequence_rules.h"

enum { Q, K, V, ED };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *q = site->inputs[Q];
    const berth_value_type *ed = site->inputs[ED];
    BERTH_RULE_TRY(berth_rule_float(site, Q));
    BERTH_RULE_TRY(berth_rule_rank(site, Q, 4));
    BERTH_RULE_TRY(berth_rule_width(site, Q));
    BERTH_RULE_TRY(berth_rule_constant(site, Q, 1));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, K, Q));
    BERTH_RULE_TRY(berth_rule_same_shape(site, K, Q));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, V, Q));
    BERTH_RULE_TRY(berth_rule_rank(site, V, 4));
    BERTH_RULE_TRY(berth_rule_width(site, V));
    for (uint32_t dim = 0; dim < 3; ++dim) {
        BERTH_RULE_TRY(berth_rule_dim(site, V, dim, q->dims[dim]));
    }
    BERTH_RULE_TRY(berth_rule_float(site, ED));
    BERTH_RULE_TRY(berth_rule_rank(site, ED, ed->ndim == 3 ? 3 : 1));
    BERTH_RULE_TRY(berth_rule_dim(site, ED, 0, q->dims[1]));
    for (uint32_t dim = 1; dim < ed->ndim; ++dim) {
        BERTH_RULE_TRY(berth_rule_dim(site, ED, dim, BERTH_DIM_CONST(1)));
    }
    berth_rule_give(out, site->inputs[V]);
    return BERTH_OK;
}

// All tokens of one head of one batch row, both counted in `row`; `memory` [d, e], `sums` [e].
static void run_head(const berth_op_args *args, int64_t row, float fade, float *memory,
                     float *sums) {
    const berth_tensor *q = args->inputs[Q];
    const berth_tensor *v = args->inputs[V];
    const int64_t keys = berth_row_length(q);
    const int64_t values = berth_row_length(v);
    for (int64_t token = row * q->shape[2]; token < (row + 1) * q->shape[2]; ++token) {
        const void *query = berth_row(q, token);
        const void *key = berth_row(args->inputs[K], token);
        const void *value = berth_row(v, token);
        memset(sums, 0, (size_t)values * sizeof *sums);
        for (int64_t i = 0; i < keys; ++i) {
            float *m = memory + i * values;
            for (int64_t j = 0; j < values; ++j) {
                m[j] = fade * m[j] +
                       berth_load_at(key, q->dtype, i) * berth_load_at(value, v->dtype, j);
                sums[j] += berth_load_at(query, q->dtype, i) * m[j];
            }
        }
        berth_store(berth_row(args->outputs[0], token), v->dtype, 0, values, sums);
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    const int64_t keys = berth_last_dim(site->inputs[Q]).b;
    return (uint64_t)((keys + 1) * berth_last_dim(site->inputs[V]).b) * sizeof(float);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *q = args->inputs[Q];
    const berth_tensor *ed = args->inputs[ED];
    const berth_tensor *state = args->states[0];
    const int64_t keys = berth_row_length(q);
    const int64_t values = berth_row_length(args->inputs[V]);
    float *memory = berth_data(args->workspace);
    BERTH_RULE_TRY(
        BERTH_STATE_CHECK(site->host, "lightning_attention", state, q->shape[1], keys, values));
    if (state->shape[0] < q->shape[0]) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "lightning_attention: a batch of %lld with %lld memories",
                                 (long long)q->shape[0], (long long)state->shape[0]);
    }
    for (int64_t row = 0; row < q->shape[0] * q->shape[1]; ++row) {
        const float rate = berth_load_at(berth_data(ed), ed->dtype, row % q->shape[1]);
        for (int64_t i = 0; i < keys; ++i) {
            berth_load(berth_row(state, row * keys + i), state->dtype, 0, values,
                       memory + i * values);
        }
        run_head(args, row, expf(-rate), memory, memory + keys * values);
        for (int64_t i = 0; i < keys; ++i) {
            berth_store(berth_row(state, row * keys + i), state->dtype, 0, values,
                        memory + i * values);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("q"),
    BERTH_STRIDED_INPUT("k"),
    BERTH_STRIDED_INPUT("v"),
    BERTH_INPUT("ed"),
};
static const berth_op_argument *const states[] = {BERTH_INPUT("kv_history")};

const berth_op berth_op_lightning_attention = {
    .size = sizeof(berth_op),
    .name = "lightning_attention",
    .class_name = "LightningAttention",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .states = states,
    .state_count = sizeof states / sizeof states[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
