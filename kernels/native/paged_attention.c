// SPDX-License-Identifier: Apache-2.0
// paged_attention: stores the new keys and values in the cache, then lets every new token attend to
// its sequence: out = softmax(scale · query·keyᵀ) · value, heads in groups.
//
//   query         [tokens, heads, d]     f32, f16 or bf16
//   key, value    [tokens, kv_heads, d]  query's dtype; both absent: the cache is read only
//   sinks         [heads]                optional: one more logit per head that has no value
//   alibi_slopes  [heads]                optional: adds −slope · distance
//   sink_key, sink_value  [m, kv_heads, d], query's dtype, optional: m tokens that stand before the
//                         first of every sequence and are in no cache
//   key_scale, value_scale  [1], f32: with caches of f8_e4m3fn, and only then
//   out           like query
//   states key_cache, value_cache  [blocks, block_size, kv_heads, d], any float dtype or f8_e4m3fn
//
// The new tokens of sequence s are the rows query_start_loc[s] … of the batch; the last one has
// position seq_lens[s] − 1. Position j lies in row j mod block_size of block
// block_table[s, j / block_size]. Query head h reads kv head h / (heads / kv_heads).
// Row t of key and value goes to slot slot_mapping[t] = block · block_size + row, −1: nowhere. A
// cache of f8_e4m3fn keeps x as the code of x / scale, at most ±448, and is read as code · scale,
// what the same step has stored, too.
// Order: scale, `logits_soft_cap` c (c·tanh(score/c), 0: none), alibi, window, softmax.
// Position i sees j when j ≤ i and, with a `sliding_window` w above 0, i − w < j. Where
// `causal_per_sequence` has a 0 for the sequence it sees later positions, too: all, or j < i + w.
// The last entry holds for all sequences behind it; absent, every sequence is causal. With
// `chunk_size` c, instead of a window and never beside those two or sink_key, position i sees the
// positions of its own chunk up to itself: i / c · c ≤ j ≤ i. All in f32
// with one rounding at the end: vLLM's ref_paged_attn, and on a block table with sink blocks before
// it.
#include <berth/op.h>

#include "rules.h"
#include "softmax_sum.h"

#include <math.h>

enum {
    QUERY,
    KEY,
    VALUE,
    SINKS,
    ALIBI_SLOPES,
    SINK_KEY,
    SINK_VALUE,
    KEY_SCALE, // of state KEY_CACHE
    VALUE_SCALE,
};
enum { SCALE, SLIDING_WINDOW, LOGITS_SOFT_CAP, CAUSAL_PER_SEQUENCE, CHUNK_SIZE };
enum { KEY_CACHE, VALUE_CACHE };

// ---- shape rule ---------------------------------------------------------------------------------

static berth_status check_new(const berth_op_site *site, uint64_t input) {
    const berth_value_type *query = site->inputs[QUERY];
    BERTH_RULE_TRY(berth_rule_same_dtype(site, input, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, input, 3));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, query->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 2, query->dims[2]));
    const int64_t heads = query->dims[1].b;
    const berth_dim kv_heads = site->inputs[input] ? site->inputs[input]->dims[1] : query->dims[1];
    if (kv_heads.symbol != BERTH_SYMBOL_NONE || kv_heads.b < 1 || heads % kv_heads.b != 0) {
        return BERTH_RULE_FAIL(site, input, "must have a number of heads that divides %lld",
                               (long long)heads);
    }
    return BERTH_OK;
}

static berth_status check_per_head(const berth_op_site *site, uint64_t input) {
    BERTH_RULE_TRY(berth_rule_float(site, input));
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, site->inputs[QUERY]->dims[1]);
}

// Either both sinks or none, shaped like each other and, but for their number, like the new keys.
static berth_status check_sinks(const berth_op_site *site) {
    if (!site->inputs[SINK_KEY] != !site->inputs[SINK_VALUE]) {
        return BERTH_RULE_FAIL(site, SINK_VALUE, "must be there when 'sink_key' is, and only then");
    }
    if (!site->inputs[SINK_KEY]) {
        return BERTH_OK;
    }
    const berth_value_type *query = site->inputs[QUERY];
    const berth_dim kv_heads = site->inputs[SINK_KEY]->dims[1];
    BERTH_RULE_TRY(berth_rule_same_dtype(site, SINK_KEY, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, SINK_KEY, 3));
    BERTH_RULE_TRY(berth_rule_dim(site, SINK_KEY, 2, query->dims[2]));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, SINK_VALUE, QUERY));
    BERTH_RULE_TRY(berth_rule_same_shape(site, SINK_VALUE, SINK_KEY));
    if (site->inputs[KEY]) {
        return berth_rule_dim(site, SINK_KEY, 1, site->inputs[KEY]->dims[1]);
    }
    return kv_heads.symbol == BERTH_SYMBOL_NONE && kv_heads.b > 0 &&
                   query->dims[1].b % kv_heads.b == 0
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, SINK_KEY, "must have a number of heads that divides %lld",
                                 (long long)query->dims[1].b);
}

static berth_status check_chunks(const berth_op_site *site) {
    const berth_attribute *chunk = site->attributes[CHUNK_SIZE];
    if (chunk->kind == BERTH_ATTRIBUTE_NONE) {
        return BERTH_OK;
    }
    if (chunk->i64 < 1) {
        return BERTH_RULE_ATTRIBUTE(site, CHUNK_SIZE, "must be at least 1, is %lld",
                                    (long long)chunk->i64);
    }
    return site->attributes[SLIDING_WINDOW]->i64 > 0 || site->inputs[SINK_KEY] ||
                   site->attributes[CAUSAL_PER_SEQUENCE]->kind != BERTH_ATTRIBUTE_NONE
               ? BERTH_RULE_ATTRIBUTE(site, CHUNK_SIZE,
                                      "must not stand beside a sliding_window, sink_key or "
                                      "causal_per_sequence, is %lld",
                                      (long long)chunk->i64)
               : BERTH_OK;
}

// [block_size, kv_heads, d] of a block.
static berth_status check_cache(const berth_op_site *site, uint64_t state) {
    const berth_value_type *cache = berth_site_state(site, state);
    const berth_dim *query = site->inputs[QUERY]->dims;
    if (!cache) {
        return BERTH_OK;
    }
    if (cache->ndim < 3 || cache->dims[cache->ndim - 1].b != query[2].b) {
        return BERTH_RULE_STATE(site, state, "must have heads of %lld numbers, as 'query' has",
                                (long long)query[2].b);
    }
    const int64_t heads = cache->dims[cache->ndim - 2].b;
    if (heads < 1 || query[1].b % heads != 0) {
        return BERTH_RULE_STATE(site, state, "must have a number of heads that divides %lld",
                                (long long)query[1].b);
    }
    const int has_codes = cache->dtype == BERTH_DTYPE_F8_E4M3FN;
    return has_codes == (site->inputs[KEY_SCALE + state] != NULL)
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, KEY_SCALE + state,
                                 "must be there when '%s' is f8_e4m3fn, and only then",
                                 site->op->states[state]->name);
}

static berth_status check_scale(const berth_op_site *site, uint64_t input) {
    if (!site->inputs[input]) {
        return BERTH_OK;
    }
    BERTH_RULE_TRY(berth_rule_f32(site, input));
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, (berth_dim)BERTH_DIM_CONST(1));
}

static berth_status check_attributes(const berth_op_site *site) {
    const double scale = site->attributes[SCALE]->f64;
    const double cap = site->attributes[LOGITS_SOFT_CAP]->f64;
    if (!isfinite(scale)) {
        return BERTH_RULE_ATTRIBUTE(site, SCALE, "must be finite, is %g", scale);
    }
    if (!(cap >= 0 && isfinite(cap))) {
        return BERTH_RULE_ATTRIBUTE(site, LOGITS_SOFT_CAP, "must be finite and not negative, is %g",
                                    cap);
    }
    if (site->attributes[SLIDING_WINDOW]->i64 < 0) {
        return BERTH_RULE_ATTRIBUTE(site, SLIDING_WINDOW, "must not be negative, is %lld",
                                    (long long)site->attributes[SLIDING_WINDOW]->i64);
    }
    return check_chunks(site);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, QUERY, 3));
    BERTH_RULE_TRY(berth_rule_width(site, QUERY));
    const berth_dim heads = site->inputs[QUERY]->dims[1];
    if (heads.symbol != BERTH_SYMBOL_NONE || heads.b < 1) {
        return BERTH_RULE_FAIL(site, QUERY, "must have a constant number of heads");
    }
    BERTH_RULE_TRY(check_new(site, KEY));
    BERTH_RULE_TRY(check_new(site, VALUE));
    if (!site->inputs[KEY] != !site->inputs[VALUE]) {
        return BERTH_RULE_FAIL(site, VALUE, "must be there when 'key' is, and only then");
    }
    if (site->inputs[KEY]) {
        BERTH_RULE_TRY(berth_rule_same_shape(site, VALUE, KEY));
    }
    BERTH_RULE_TRY(check_per_head(site, SINKS));
    BERTH_RULE_TRY(check_per_head(site, ALIBI_SLOPES));
    BERTH_RULE_TRY(check_sinks(site));
    BERTH_RULE_TRY(check_attributes(site));
    BERTH_RULE_TRY(check_scale(site, KEY_SCALE));
    BERTH_RULE_TRY(check_scale(site, VALUE_SCALE));
    BERTH_RULE_TRY(check_cache(site, KEY_CACHE));
    BERTH_RULE_TRY(check_cache(site, VALUE_CACHE));
    berth_rule_give(out, site->inputs[QUERY]);
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// What the codes of a cache are multiplied by; 1 where it has none.
static float scale_of(const berth_op_args *args, uint64_t state) {
    const berth_tensor *scale = args->inputs[KEY_SCALE + state];
    return scale ? *(const float *)berth_data(scale) : 1.0f;
}

// Number i of a row of the cache.
static void store_at(const berth_op_args *args, uint64_t state, void *row, int64_t i, float value) {
    const berth_dtype dtype = args->states[state]->dtype;
    if (dtype == BERTH_DTYPE_F8_E4M3FN) {
        ((uint8_t *)row)[i] = berth_to_f8(value / scale_of(args, state));
    } else {
        berth_store_at(row, dtype, i, value);
    }
}

// Row `row` of the new keys or values to its slot of the cache.
static void store(const berth_op_args *args, uint64_t state, int64_t row, int64_t slot) {
    const berth_tensor *from = args->inputs[KEY + state];
    const berth_tensor *cache = args->states[state];
    const int64_t heads = cache->shape[2];
    for (int64_t head = 0; head < heads; ++head) {
        const void *source = berth_row(from, row * heads + head);
        void *target = berth_row(cache, slot * heads + head);
        for (int64_t i = 0; i < cache->shape[3]; ++i) {
            store_at(args, state, target, i, berth_load_at(source, from->dtype, i));
        }
    }
}

// One head of one query token.
typedef struct head {
    const berth_op_site *site;
    const berth_op_args *args;
    const int32_t *block_table; // of the sequence
    int64_t index;
    int64_t position; // with those of the sinks
    int64_t end;      // behind the last position that it may see
    int64_t sinks;    // m
    const void *query;
    float *widened; // [d], for a row of codes
} head;

// The key (KEY_CACHE) or value of a position, and its dtype. One at a time: codes become floats in
// room that they share.
static const void *key_row(const head *self, uint64_t state, int64_t position, berth_dtype *dtype) {
    const berth_tensor *cache = self->args->states[state];
    const int64_t group = self->args->inputs[QUERY]->shape[1] / cache->shape[2];
    const berth_tensor *sink = self->args->inputs[SINK_KEY + state];
    if (sink && position < self->sinks) {
        *dtype = sink->dtype;
        return berth_row(sink, position * sink->shape[1] + self->index / group);
    }
    position -= self->sinks;
    const int64_t block = self->block_table[position / cache->shape[1]];
    const int64_t slot = block * cache->shape[1] + position % cache->shape[1];
    const void *row = berth_row(cache, slot * cache->shape[2] + self->index / group);
    if (cache->dtype != BERTH_DTYPE_F8_E4M3FN) {
        *dtype = cache->dtype;
        return row;
    }
    *dtype = BERTH_DTYPE_F32;
    for (int64_t i = 0; i < cache->shape[3]; ++i) {
        self->widened[i] = berth_from_f8(((const uint8_t *)row)[i]) * scale_of(self->args, state);
    }
    return self->widened;
}

static float score(const head *self, int64_t position) {
    const berth_tensor *query = self->args->inputs[QUERY];
    const berth_tensor *slopes = self->args->inputs[ALIBI_SLOPES];
    const float cap = (float)self->site->attributes[LOGITS_SOFT_CAP]->f64;
    berth_dtype dtype = BERTH_DTYPE_NONE;
    const void *key = key_row(self, KEY_CACHE, position, &dtype);
    float value = berth_dot(self->query, query->dtype, key, dtype, query->shape[2]);
    value *= (float)self->site->attributes[SCALE]->f64;
    if (cap > 0) {
        value = cap * tanhf(value / cap);
    }
    if (slopes) {
        const float slope = berth_load_at(berth_data(slopes), slopes->dtype, self->index);
        value -= slope * (float)(self->position - position);
    }
    return value;
}

static int64_t first_seen(const head *self) {
    const int64_t window = self->site->attributes[SLIDING_WINDOW]->i64;
    const berth_attribute *chunk = self->site->attributes[CHUNK_SIZE];
    if (chunk->kind != BERTH_ATTRIBUTE_NONE) {
        return self->position / chunk->i64 * chunk->i64;
    }
    return window > 0 && self->position >= window ? self->position - window + 1 : 0;
}

static void attend(const head *self, void *out) {
    const berth_tensor *sinks = self->args->inputs[SINKS];
    const int64_t window = self->site->attributes[SLIDING_WINDOW]->i64;
    const int64_t end =
        window > 0 && self->position + window < self->end ? self->position + window : self->end;
    berth_softmax_sum sum = berth_softmax_begin(berth_data(self->args->workspace),
                                                self->args->states[VALUE_CACHE]->shape[3]);
    if (sinks) {
        const float sink = berth_load_at(berth_data(sinks), sinks->dtype, self->index);
        berth_softmax_take(&sum, sink, NULL, BERTH_DTYPE_NONE);
    }
    for (int64_t j = first_seen(self); j < end; ++j) {
        berth_dtype dtype = BERTH_DTYPE_NONE;
        const float weight = score(self, j);
        const void *value = key_row(self, VALUE_CACHE, j, &dtype);
        berth_softmax_take(&sum, weight, value, dtype);
    }
    berth_softmax_store(&sum, out, self->args->outputs[0]->dtype);
}

static int is_causal(const berth_op_site *site, int64_t sequence) {
    const berth_attribute *list = site->attributes[CAUSAL_PER_SEQUENCE];
    if (list->kind == BERTH_ATTRIBUTE_NONE || list->count == 0) {
        return 1;
    }
    const int64_t last = (int64_t)list->count - 1;
    return list->i64s[sequence < last ? sequence : last] != 0;
}

// All heads of the new tokens of one sequence.
static void attend_sequence(const berth_op_site *site, const berth_op_args *args,
                            int64_t sequence) {
    const berth_batch_view *batch = args->batch->host;
    const berth_tensor *query = args->inputs[QUERY];
    const int32_t *starts = berth_data(batch->query_start_loc);
    const int32_t *lengths = berth_data(batch->seq_lens);
    head self = {
        .site = site,
        .args = args,
        .block_table = berth_row(batch->block_tables[site->cache_group], sequence),
        .sinks = args->inputs[SINK_KEY] ? args->inputs[SINK_KEY]->shape[0] : 0,
        .widened = (float *)((double *)berth_data(args->workspace) + query->shape[2]),
    };
    const int64_t length = lengths[sequence] + self.sinks;
    for (int64_t row = starts[sequence]; row < starts[sequence + 1]; ++row) {
        self.position = length - (starts[sequence + 1] - row);
        self.end = is_causal(site, sequence) ? self.position + 1 : length;
        for (int64_t i = 0; i < query->shape[1]; ++i) {
            self.index = i;
            self.query = berth_row(query, row * query->shape[1] + i);
            attend(&self, berth_row(args->outputs[0], row * query->shape[1] + i));
        }
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)site->inputs[QUERY]->dims[2].b * (sizeof(double) + sizeof(float));
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    if (!args->batch || !args->batch->host) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "paged_attention: needs a batch");
    }
    const berth_batch_view *batch = args->batch->host;
    const int64_t *slots = berth_data(batch->slot_mappings[site->cache_group]);
    for (int64_t row = 0; args->inputs[KEY] && row < args->inputs[KEY]->shape[0]; ++row) {
        if (slots[row] >= 0) {
            store(args, KEY_CACHE, row, slots[row]);
            store(args, VALUE_CACHE, row, slots[row]);
        }
    }
    for (int64_t sequence = 0; sequence < args->batch->sequence_count; ++sequence) {
        attend_sequence(site, args, sequence);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("query"),          BERTH_OPTIONAL_STRIDED_INPUT("key"),
    BERTH_OPTIONAL_STRIDED_INPUT("value"), BERTH_OPTIONAL_INPUT("sinks"),
    BERTH_OPTIONAL_INPUT("alibi_slopes"),  BERTH_LATER_INPUT("sink_key", 2),
    BERTH_LATER_INPUT("sink_value", 2),    BERTH_LATER_INPUT("key_scale", 4),
    BERTH_LATER_INPUT("value_scale", 4),
};
static const berth_op_argument *const states[] = {
    BERTH_INPUT("key_cache"),
    BERTH_INPUT("value_cache"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64),
    BERTH_OPTIONAL_ATTRIBUTE("sliding_window", BERTH_ATTRIBUTE_I64, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("logits_soft_cap", BERTH_ATTRIBUTE_F64, .f64 = 0.0),
    BERTH_LATER_ATTRIBUTE("causal_per_sequence", BERTH_ATTRIBUTE_I64S, 2),
    BERTH_LATER_ATTRIBUTE("chunk_size", BERTH_ATTRIBUTE_I64, 3),
};

const berth_op berth_op_paged_attention = {
    .size = sizeof(berth_op),
    .name = "paged_attention",
    .class_name = "PagedAttention",
    .revision = 4,
    .compatible_revision = 1,
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
