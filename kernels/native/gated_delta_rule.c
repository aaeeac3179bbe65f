// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule: the core of gated delta nets. Every value head keeps a matrix that maps keys to
// values; each token lets it fade and then corrects what it says for the token's key.
//
//   query, key     [tokens, key_heads, k]    f32, f16 or bf16; also [1, tokens, key_heads, k]
//   value          [tokens, value_heads, v]  query's dtype, of query's rank
//   a, b           [tokens, value_heads]     query's dtype
//   A_log          [value_heads]             any float dtype
//   dt_bias        [value_heads]             any float dtype
//   initial_state  [s, value_heads, v, k]    optional, beside cu_seqlens only; otherwise zeros
//   cu_seqlens     [s + 1]                   optional: where the sequences begin
//   y              like value
//   final_state    [s, value_heads, v, k] f32, an output where cu_seqlens is given
//   state ssm_states  [slots, value_heads, v, k], any float dtype, used where cu_seqlens is not
//                     given: then the sequences are those of the batch, see kernels/sequences.h
//
// With g = −exp(A_log) · softplus(a + dt_bias), β = sigmoid(b), and query and key brought to length
// 1 when `use_qk_l2norm_in_kernel`:
//   S ← e^g · S;   S ← S + β · (value − S · key) ⊗ key;   y = S · query / √k
// Value head i reads key head i / (value_heads / key_heads).
// All in f32, one rounding of y. Why 1e-6 under the root of a length: vLLM's device kernels have
// it; the reference of its tests takes 1e-5 and rounds the length to the input's dtype.
#include <berth/op.h>

#include <matrices.h>
#include <recurrence.h>

#include "sequence_rules.h"

enum { QUERY, KEY, VALUE, GATE, BETA, A_LOG, DT_BIAS, INITIAL_STATE, CU_SEQLENS };
enum { USE_L2NORM };

#define LENGTH_EPS 1e-6f

// ---- shape rule ---------------------------------------------------------------------------------

// [tokens, heads, width] behind an optional 1.
static berth_status check_heads(const berth_op_site *site, uint64_t input) {
    const uint32_t rank = site->inputs[QUERY]->ndim == 4 ? 4 : 3;
    BERTH_RULE_TRY(berth_rule_same_dtype(site, input, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, input, rank));
    BERTH_RULE_TRY(berth_rule_width(site, input));
    if (rank == 4) {
        BERTH_RULE_TRY(berth_rule_dim(site, input, 0, BERTH_DIM_CONST(1)));
    }
    BERTH_RULE_TRY(berth_rule_dim(site, input, rank - 3, site->inputs[QUERY]->dims[rank - 3]));
    return berth_rule_constant(site, input, rank - 2);
}

static berth_status infer_states(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *value = site->inputs[VALUE];
    const berth_value_type *starts = site->inputs[CU_SEQLENS];
    BERTH_RULE_TRY(berth_rule_starts(site, CU_SEQLENS));
    if (!starts) {
        return site->inputs[INITIAL_STATE]
                   ? BERTH_RULE_FAIL(site, INITIAL_STATE, "must stand beside 'cu_seqlens'")
                   : BERTH_OK;
    }
    const berth_dim count = BERTH_DIM_CONST(starts->dims[0].b - 1);
    const berth_dim heads = value->dims[value->ndim - 2];
    const berth_dim keys = berth_last_dim(site->inputs[KEY]);
    BERTH_RULE_TRY(
        BERTH_RULE_SHAPE(site, INITIAL_STATE, count, heads, berth_last_dim(value), keys));
    berth_value_type *final = berth_rule_give(out, value);
    *final = (berth_value_type){
        .size = final->size,
        .dtype = BERTH_DTYPE_F32,
        .ndim = 4,
        .dims = {count, heads, berth_last_dim(value), keys},
    };
    return BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    BERTH_RULE_TRY(check_heads(site, QUERY));
    BERTH_RULE_TRY(check_heads(site, KEY));
    BERTH_RULE_TRY(berth_rule_same_shape(site, KEY, QUERY));
    BERTH_RULE_TRY(check_heads(site, VALUE));
    const berth_value_type *value = site->inputs[VALUE];
    const berth_dim tokens = value->dims[value->ndim - 3];
    const berth_dim heads = value->dims[value->ndim - 2];
    if (heads.b % site->inputs[KEY]->dims[value->ndim - 2].b != 0) {
        return BERTH_RULE_FAIL(site, KEY, "must have a number of heads that divides %lld",
                               (long long)heads.b);
    }
    for (uint64_t input = GATE; input <= BETA; ++input) {
        BERTH_RULE_TRY(berth_rule_same_dtype(site, input, QUERY));
        BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, input, tokens, heads));
    }
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, A_LOG, heads));
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, DT_BIAS, heads));
    berth_rule_give(out, value);
    return infer_states(site, out);
}

// ---- reference ----------------------------------------------------------------------------------

typedef struct head {
    const berth_op_args *args;
    int64_t index; // of the value head
    int64_t heads;
    int64_t key_index;
    int64_t key_heads;
    int64_t keys;   // k
    int64_t values; // v
    int is_normed;
    float *key;    // [k]
    float *query;  // [k]
    float *matrix; // [v, k]
} head;

// The head's row of query or key, brought to length 1 when the site wants it.
static void load_row(const head *self, uint64_t input, int64_t token, float *out) {
    const berth_tensor *x = self->args->inputs[input];
    float sum = 0;
    berth_load(berth_row(x, token * self->key_heads + self->key_index), x->dtype, 0, self->keys,
               out);
    for (int64_t i = 0; i < self->keys; ++i) {
        sum += out[i] * out[i];
    }
    for (int64_t i = 0; i < self->keys && self->is_normed; ++i) {
        out[i] /= sqrtf(sum + LENGTH_EPS);
    }
}

static float per_head(const head *self, uint64_t input) {
    const berth_tensor *x = self->args->inputs[input];
    return berth_load_at(berth_data(x), x->dtype, self->index);
}

static float per_token(const head *self, uint64_t input, int64_t token) {
    const berth_tensor *x = self->args->inputs[input];
    return berth_load_at(berth_row(x, token), x->dtype, self->index);
}

static void step(const head *self, int64_t token) {
    const berth_tensor *value = self->args->inputs[VALUE];
    const berth_tensor *y = self->args->outputs[0];
    const int64_t row = token * self->heads + self->index;
    const float gate = per_token(self, GATE, token) + per_head(self, DT_BIAS);
    const float fade = expf(-expf(per_head(self, A_LOG)) * berth_softplus(gate));
    const float beta = berth_sigmoid(per_token(self, BETA, token));
    const float scale = 1.0f / sqrtf((float)self->keys);
    load_row(self, KEY, token, self->key);
    load_row(self, QUERY, token, self->query);
    for (int64_t i = 0; i < self->values; ++i) {
        float *s = self->matrix + i * self->keys;
        float said = 0;
        float sum = 0;
        for (int64_t j = 0; j < self->keys; ++j) {
            s[j] *= fade;
            said += s[j] * self->key[j];
        }
        const float wanted = berth_load_at(berth_row(value, row), value->dtype, i);
        for (int64_t j = 0; j < self->keys; ++j) {
            s[j] += beta * (wanted - said) * self->key[j];
            sum += s[j] * self->query[j];
        }
        berth_store_at(berth_row(y, row), y->dtype, i, sum * scale);
    }
}

static void scan(const head *self, const berth_sequence *sequence, int64_t index) {
    const berth_op_args *args = self->args;
    const berth_matrices its = berth_matrices_of(args, args->inputs[CU_SEQLENS],
                                                 args->inputs[INITIAL_STATE], sequence, index);
    const int64_t first = (its.slot * self->heads + self->index) * self->values;
    memset(self->matrix, 0, (size_t)(self->values * self->keys) * sizeof(float));
    for (int64_t i = 0; i < self->values && its.from; ++i) {
        berth_load(berth_row(its.from, first + i), its.from->dtype, 0, self->keys,
                   self->matrix + i * self->keys);
    }
    for (int64_t token = sequence->first; token < sequence->end; ++token) {
        step(self, token);
    }
    for (int64_t i = 0; i < self->values; ++i) {
        berth_store(berth_row(its.to, first + i), its.to->dtype, 0, self->keys,
                    self->matrix + i * self->keys);
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    const int64_t keys = berth_last_dim(site->inputs[KEY]).b;
    const int64_t values = berth_last_dim(site->inputs[VALUE]).b;
    return (uint64_t)(keys * (values + 2)) * sizeof(float);
}

static berth_status begin(const berth_op_site *site, const berth_op_args *args, const head *sizes,
                          berth_sequences *out) {
    const berth_tensor *value = args->inputs[VALUE];
    *out = (berth_sequences){
        .host = site->host,
        .op = "gated_delta_rule",
        .cache_group = site->cache_group,
        .starts = args->inputs[CU_SEQLENS],
    };
    return BERTH_MATRICES_OPEN(out, args, value->shape[value->ndim - 3], sizes->heads,
                               sizes->values, sizes->keys);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *key = args->inputs[KEY];
    const berth_tensor *value = args->inputs[VALUE];
    float *room = berth_data(args->workspace);
    head at = {
        .args = args,
        .heads = value->shape[value->ndim - 2],
        .key_heads = key->shape[key->ndim - 2],
        .keys = berth_row_length(key),
        .values = berth_row_length(value),
        .is_normed = site->attributes[USE_L2NORM]->i64 != 0,
    };
    berth_sequences sequences;
    BERTH_RULE_TRY(begin(site, args, &at, &sequences));
    at.key = room;
    at.query = room + at.keys;
    at.matrix = room + 2 * at.keys;
    for (int64_t i = 0; i < sequences.count; ++i) {
        const berth_sequence sequence = berth_sequence_at(&sequences, i);
        const int is_there = berth_matrices_has(args->inputs[CU_SEQLENS], &sequence);
        for (at.index = 0; at.index < at.heads && is_there; ++at.index) {
            at.key_index = at.index / (at.heads / at.key_heads);
            scan(&at, &sequence, i);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("query"),
    BERTH_STRIDED_INPUT("key"),
    BERTH_STRIDED_INPUT("value"),
    BERTH_STRIDED_INPUT("a"),
    BERTH_STRIDED_INPUT("b"),
    BERTH_INPUT("A_log"),
    BERTH_INPUT("dt_bias"),
    BERTH_OPTIONAL_INPUT("initial_state"),
    BERTH_OPTIONAL_INPUT("cu_seqlens"),
};
static const berth_op_argument *const states[] = {BERTH_OPTIONAL_INPUT("ssm_states")};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("use_qk_l2norm_in_kernel", BERTH_ATTRIBUTE_BOOL, .i64 = 1),
};

const berth_op berth_op_gated_delta_rule = {
    .size = sizeof(berth_op),
    .name = "gated_delta_rule",
    .class_name = "GatedDeltaRule",
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
