// SPDX-License-Identifier: Apache-2.0
// mla: multi-head latent attention. Keys and values of all heads are made from one latent row per
// token by kv_b_proj, beside a rotated part of the key that the heads share; only these two rows
// are kept.
//
//   query             [tokens, heads, n + p]  f32, f16 or bf16; n columns without position, then p
//                                             rotated ones
//   c_kv              [rows, l]               query's dtype: normalised latents
//   k_pe              [rows, p]               query's dtype: rotated
//   kv_b_proj_weight  [heads · (n + v), l]    any float dtype: per head the n rows of the key, then
//                                             the v rows of the value
//   query_pe          [tokens, heads, p]      optional; then query is [tokens, heads, n]
//   query_start_loc   [s + 1]                 optional, with seq_lens [s]; absent: those of the
//   batch y                 [tokens, heads, v]      query's dtype state kv_cache    [blocks,
//   block_size, l + p], any float dtype, optional
//
// With the state, rows are the new tokens: row t goes to slot slot_mapping[t] of the batch, −1:
// nowhere, and keys come from the cache by the sequence's block table. Without it rows are the
// context and new tokens of each sequence, one sequence after another. A query sees the keys up to
// its own position; the last one of a sequence has the last position.
// `form`: "prefill" makes keys and values of every head, "decode" absorbs kv_b_proj into the query
// and the result instead, "" decodes sequences of one new token with a context. Both are one
// mathematics; they differ in what is rounded to query's dtype: keys and values, or the absorbed
// query and the latent sum. `scale` as given; `qk_nope_head_dim`, if given, is n. All else in f32.
#include <berth/op.h>

#include <sequences.h>

#include "sequence_rules.h"
#include "softmax_sum.h"

enum { QUERY, C_KV, K_PE, KV_B_PROJ_WEIGHT, QUERY_PE, QUERY_START_LOC, SEQ_LENS };
enum { ATTR_SCALE, V_HEAD_DIM, QK_NOPE_HEAD_DIM, FORM };

// ---- shape rule ---------------------------------------------------------------------------------

// Columns of the query without position.
static int64_t nope_of(const berth_op_site *site) {
    const int64_t width = berth_last_dim(site->inputs[QUERY]).b;
    return site->inputs[QUERY_PE] ? width : width - berth_last_dim(site->inputs[K_PE]).b;
}

static berth_status check_rows(const berth_op_site *site) {
    for (uint64_t input = C_KV; input <= K_PE; ++input) {
        BERTH_RULE_TRY(berth_rule_same_dtype(site, input, QUERY));
        BERTH_RULE_TRY(berth_rule_rank(site, input, 2));
        BERTH_RULE_TRY(berth_rule_width(site, input));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 0, site->inputs[C_KV]->dims[0]));
    }
    return BERTH_OK;
}

static berth_status check_attributes(const berth_op_site *site) {
    const char *form = site->attributes[FORM]->str;
    BERTH_RULE_TRY(berth_rule_scale(site, ATTR_SCALE));
    if (site->attributes[V_HEAD_DIM]->i64 < 1) {
        return BERTH_RULE_ATTRIBUTE(site, V_HEAD_DIM, "must be at least 1, is %lld",
                                    (long long)site->attributes[V_HEAD_DIM]->i64);
    }
    return strcmp(form, "") == 0 || strcmp(form, "prefill") == 0 || strcmp(form, "decode") == 0
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, FORM, "must be prefill, decode or empty, is '%s'",
                                      form);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *query = site->inputs[QUERY];
    BERTH_RULE_TRY(check_attributes(site));
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, QUERY, 3));
    BERTH_RULE_TRY(berth_rule_width(site, QUERY));
    BERTH_RULE_TRY(berth_rule_constant(site, QUERY, 1));
    BERTH_RULE_TRY(check_rows(site));
    const int64_t rotated = berth_last_dim(site->inputs[K_PE]).b;
    BERTH_RULE_TRY(berth_rule_same_dtype(site, QUERY_PE, QUERY));
    BERTH_RULE_TRY(
        BERTH_RULE_SHAPE(site, QUERY_PE, query->dims[0], query->dims[1], BERTH_DIM_CONST(rotated)));
    if (nope_of(site) < 1) {
        return BERTH_RULE_FAIL(site, QUERY, "must be wider than the %lld rotated columns",
                               (long long)rotated);
    }
    const berth_attribute *nope = site->attributes[QK_NOPE_HEAD_DIM];
    if (nope->kind != BERTH_ATTRIBUTE_NONE && nope->i64 != nope_of(site)) {
        return BERTH_RULE_ATTRIBUTE(site, QK_NOPE_HEAD_DIM, "must be %lld as in 'query', is %lld",
                                    (long long)nope_of(site), (long long)nope->i64);
    }
    const int64_t values = site->attributes[V_HEAD_DIM]->i64;
    const berth_dim made = BERTH_DIM_CONST(query->dims[1].b * (nope_of(site) + values));
    BERTH_RULE_TRY(
        BERTH_RULE_SHAPE(site, KV_B_PROJ_WEIGHT, made, berth_last_dim(site->inputs[C_KV])));
    BERTH_RULE_TRY(berth_rule_starts(site, QUERY_START_LOC));
    BERTH_RULE_TRY(berth_rule_index(site, SEQ_LENS, 1));
    if (!site->inputs[QUERY_START_LOC] != !site->inputs[SEQ_LENS]) {
        return BERTH_RULE_FAIL(site, SEQ_LENS,
                               "must be there when 'query_start_loc' is, and only then");
    }
    berth_rule_give(out, query)->dims[2] = BERTH_DIM_CONST(values);
    return BERTH_OK;
}

// ---- the context --------------------------------------------------------------------------------

// One sequence and one head of it.
typedef struct head {
    const berth_op_args *args;
    const int32_t *block_table; // NULL without a cache
    int64_t context_row;        // of the first key in c_kv, without a cache
    int64_t index;
    int64_t first;  // row of the first query
    int64_t count;  // of queries
    int64_t length; // keys
    int64_t heads;
    int64_t nope;   // n
    int64_t rope;   // p
    int64_t latent; // l
    int64_t values; // v
    float scale;
    float *room;               // [l + n + v]
    double *sums;              // [count, v], or [l]
    berth_softmax_sum *states; // [count]
} head;

// Latent and rotated part of a key, which lie in one row of the cache.
static const void *key_row(const head *self, int64_t position, const void **out_rotated,
                           berth_dtype *out_dtype) {
    const berth_tensor *c_kv = self->args->inputs[C_KV];
    *out_dtype = c_kv->dtype;
    if (!self->block_table) {
        *out_rotated = berth_row(self->args->inputs[K_PE], self->context_row + position);
        return berth_row(c_kv, self->context_row + position);
    }
    const berth_tensor *cache = self->args->states[0];
    const int64_t block = self->block_table[position / cache->shape[1]];
    const void *row = berth_row(cache, block * cache->shape[1] + position % cache->shape[1]);
    *out_dtype = cache->dtype;
    *out_rotated = (const char *)row + self->latent * (BERTH_DTYPE_BITS(cache->dtype) / 8);
    return row;
}

static const void *query_row(const head *self, int64_t query) {
    return berth_row(self->args->inputs[QUERY], (self->first + query) * self->heads + self->index);
}

// The score's part from the columns that carry the position.
static float rotated_score(const head *self, int64_t query, const void *rotated,
                           berth_dtype dtype) {
    const berth_tensor *apart = self->args->inputs[QUERY_PE];
    const berth_dtype own = self->args->inputs[QUERY]->dtype;
    const void *row =
        apart ? berth_row(apart, (self->first + query) * self->heads + self->index)
              : (const char *)query_row(self, query) + self->nope * (BERTH_DTYPE_BITS(own) / 8);
    return berth_dot(row, own, rotated, dtype, self->rope);
}

// Row `i` of this head in kv_b_proj: keys first.
static const void *weight_row(const head *self, int64_t i) {
    return berth_row(self->args->inputs[KV_B_PROJ_WEIGHT],
                     self->index * (self->nope + self->values) + i);
}

static void *output_row(const head *self, int64_t query) {
    return berth_row(self->args->outputs[0], (self->first + query) * self->heads + self->index);
}

// ---- both forms ---------------------------------------------------------------------------------

// Every key once: its key and value of this head, then all queries that see it.
static void prefill(const head *self) {
    const berth_dtype own = self->args->inputs[QUERY]->dtype;
    const berth_dtype weights = self->args->inputs[KV_B_PROJ_WEIGHT]->dtype;
    for (int64_t i = 0; i < self->count; ++i) {
        self->states[i] = berth_softmax_begin(self->sums + i * self->values, self->values);
    }
    for (int64_t j = 0; j < self->length; ++j) {
        berth_dtype dtype = 0;
        const void *rotated = NULL;
        const void *latent = key_row(self, j, &rotated, &dtype);
        for (int64_t i = 0; i < self->nope + self->values; ++i) {
            const float made = berth_dot(weight_row(self, i), weights, latent, dtype, self->latent);
            self->room[i] = berth_round_to(own, made);
        }
        const int64_t earliest = self->count - self->length + j;
        for (int64_t i = earliest > 0 ? earliest : 0; i < self->count; ++i) {
            const float score =
                berth_dot(query_row(self, i), own, self->room, BERTH_DTYPE_F32, self->nope) +
                rotated_score(self, i, rotated, dtype);
            berth_softmax_take(&self->states[i], self->scale * score, self->room + self->nope,
                               BERTH_DTYPE_F32);
        }
    }
    for (int64_t i = 0; i < self->count; ++i) {
        berth_softmax_store(&self->states[i], output_row(self, i), own);
    }
}

// The query times the key part of kv_b_proj: [l].
static void absorb(const head *self, int64_t query, float *out) {
    const berth_dtype own = self->args->inputs[QUERY]->dtype;
    const berth_dtype weights = self->args->inputs[KV_B_PROJ_WEIGHT]->dtype;
    const void *row = query_row(self, query);
    memset(out, 0, (size_t)self->latent * sizeof *out);
    for (int64_t i = 0; i < self->nope; ++i) {
        const float factor = berth_load_at(row, own, i);
        for (int64_t k = 0; k < self->latent; ++k) {
            out[k] += factor * berth_load_at(weight_row(self, i), weights, k);
        }
    }
    for (int64_t k = 0; k < self->latent; ++k) {
        out[k] = berth_round_to(own, out[k]);
    }
}

static void decode(const head *self) {
    const berth_dtype own = self->args->inputs[QUERY]->dtype;
    const berth_dtype weights = self->args->inputs[KV_B_PROJ_WEIGHT]->dtype;
    for (int64_t i = 0; i < self->count; ++i) {
        absorb(self, i, self->room);
        berth_softmax_sum sum = berth_softmax_begin(self->sums, self->latent);
        for (int64_t j = 0; j <= self->length - self->count + i; ++j) {
            berth_dtype dtype = 0;
            const void *rotated = NULL;
            const void *latent = key_row(self, j, &rotated, &dtype);
            const float score =
                berth_dot(self->room, BERTH_DTYPE_F32, latent, dtype, self->latent) +
                rotated_score(self, i, rotated, dtype);
            berth_softmax_take(&sum, self->scale * score, latent, dtype);
        }
        for (int64_t k = 0; k < self->latent; ++k) {
            self->room[k] = berth_round_to(own, berth_softmax_at(&sum, k));
        }
        for (int64_t k = 0; k < self->values; ++k) {
            const float value = berth_dot(weight_row(self, self->nope + k), weights, self->room,
                                          BERTH_DTYPE_F32, self->latent);
            berth_store_at(output_row(self, i), own, k, value);
        }
    }
}

// ---- the batch ----------------------------------------------------------------------------------

// New rows to their slots of the cache.
static void store(const berth_op_args *args, const int64_t *slots) {
    const berth_tensor *cache = args->states[0];
    const berth_tensor *c_kv = args->inputs[C_KV];
    const berth_tensor *k_pe = args->inputs[K_PE];
    const int64_t latent = berth_row_length(c_kv);
    for (int64_t row = 0; row < c_kv->shape[0]; ++row) {
        if (slots[row] < 0) {
            continue;
        }
        void *to = berth_row(cache, slots[row]);
        for (int64_t i = 0; i < latent; ++i) {
            berth_store_at(to, cache->dtype, i,
                           berth_load_at(berth_row(c_kv, row), c_kv->dtype, i));
        }
        for (int64_t i = 0; i < berth_row_length(k_pe); ++i) {
            berth_store_at(to, cache->dtype, latent + i,
                           berth_load_at(berth_row(k_pe, row), k_pe->dtype, i));
        }
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    const int64_t latent = berth_last_dim(site->inputs[C_KV]).b;
    const int64_t values = site->attributes[V_HEAD_DIM]->i64;
    const uint64_t rows = berth_rule_rows(site->inputs[QUERY], tokens);
    const uint64_t sums = rows * (uint64_t)values + (uint64_t)latent;
    return sums * sizeof(double) + rows * sizeof(berth_softmax_sum) +
           (uint64_t)(latent + nope_of(site) + values) * sizeof(float);
}

static head make_head(const berth_op_site *site, const berth_op_args *args) {
    const berth_tensor *query = args->inputs[QUERY];
    const int64_t values = site->attributes[V_HEAD_DIM]->i64;
    head self = {
        .args = args,
        .heads = query->shape[1],
        .nope = nope_of(site),
        .rope = berth_row_length(args->inputs[K_PE]),
        .latent = berth_row_length(args->inputs[C_KV]),
        .values = values,
        .scale = (float)site->attributes[ATTR_SCALE]->f64,
        .sums = berth_data(args->workspace),
    };
    self.states = (berth_softmax_sum *)(self.sums + query->shape[0] * values + self.latent);
    self.room = (float *)(self.states + query->shape[0]);
    return self;
}

static berth_status attend_sequence(const berth_op_site *site, head *self, const char *form,
                                    int64_t rows) {
    if (self->length < self->count ||
        (!self->block_table && self->context_row + self->length > rows)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "mla: a sequence of %lld tokens, %lld of them new, does not fit",
                                 (long long)self->length, (long long)self->count);
    }
    const int is_decode = form[0] == 'd' || (form[0] == 0 && self->count == 1 && self->length > 1);
    for (self->index = 0; self->index < self->heads; ++self->index) {
        if (is_decode) {
            decode(self);
        } else {
            prefill(self);
        }
    }
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *lengths = args->inputs[SEQ_LENS];
    const berth_batch_view *view = args->batch ? args->batch->host : NULL;
    head at = make_head(site, args);
    berth_sequences sequences = {
        .host = site->host,
        .op = "mla",
        .starts = args->inputs[QUERY_START_LOC],
    };
    BERTH_RULE_TRY(
        berth_sequences_open(&sequences, args->batch, args->inputs[QUERY]->shape[0], INT64_MAX));
    const berth_tensor *cache = args->states[0];
    if (cache && (!view || lengths)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "mla: a cache goes with the sequences of a batch, not with "
                                 "'query_start_loc'");
    }
    if (!view && !lengths) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "mla: needs a batch or the lengths of its sequences");
    }
    if (cache) {
        BERTH_RULE_TRY(
            BERTH_STATE_CHECK(site->host, "mla", cache, cache->shape[1], at.latent + at.rope));
        store(args, berth_data(view->slot_mappings[site->cache_group]));
    }
    for (int64_t i = 0; i < sequences.count; ++i) {
        const berth_sequence sequence = berth_sequence_at(&sequences, i);
        at.first = sequence.first;
        at.count = sequence.end - sequence.first;
        at.length = berth_sequences_at(lengths ? lengths : view->seq_lens, i);
        if (cache) {
            at.block_table = berth_row(view->block_tables[site->cache_group], i);
        }
        BERTH_RULE_TRY(
            attend_sequence(site, &at, site->attributes[FORM]->str, args->inputs[C_KV]->shape[0]));
        at.context_row += at.length;
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("query"),
    BERTH_STRIDED_INPUT("c_kv"),
    BERTH_STRIDED_INPUT("k_pe"),
    BERTH_INPUT("kv_b_proj_weight"),
    BERTH_OPTIONAL_STRIDED_INPUT("query_pe"),
    BERTH_OPTIONAL_INPUT("query_start_loc"),
    BERTH_OPTIONAL_INPUT("seq_lens"),
};
static const berth_op_argument *const states[] = {BERTH_OPTIONAL_INPUT("kv_cache")};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64),
    BERTH_REQUIRED_ATTRIBUTE("v_head_dim", BERTH_ATTRIBUTE_I64),
    BERTH_ABSENT_ATTRIBUTE("qk_nope_head_dim", BERTH_ATTRIBUTE_I64),
    BERTH_OPTIONAL_ATTRIBUTE("form", BERTH_ATTRIBUTE_STR, .str = ""),
};

const berth_op berth_op_mla = {
    .size = sizeof(berth_op),
    .name = "mla",
    .class_name = "MLAAttention",
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
