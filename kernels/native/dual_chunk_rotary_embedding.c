// SPDX-License-Identifier: Apache-2.0
// dual_chunk_rotary_embedding: rotates keys by their place in a chunk, and queries five times, for
// keys of their own chunk, of the chunk before and of those further back.
//
//   positions  [tokens]               i32 or i64, 0 to max_position_embeddings − 1
//   query      [tokens, heads, d]     f32, f16 or bf16
//   key        [tokens, kv_heads, d]  query's dtype
//   query_out  [tokens, 5·heads·d]    the five versions one after another
//   key_out    like key
//
// With l = chunk_size − local_size and p the position, a key turns by p mod l and the queries by
// p mod l, min(p mod l + l, chunk_size), min(2l − 1, chunk_size), p mod l + l and
// p mod l + chunk_size. Angles and rotation are rotary_embedding's of type default, in three
// roundings: vLLM's DualChunkRotaryEmbedding.forward_native, which its device path runs too. For
// one token vLLM drops the first dimension; here it stays.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

enum { POSITIONS, QUERY, KEY };
enum { ROTARY_DIM, MAX_POSITION_EMBEDDINGS, BASE, IS_NEOX_STYLE, CHUNK_SIZE, LOCAL_SIZE };
#define VERSIONS 5 // of a query

static int64_t number(const berth_op_site *site, uint64_t attribute) {
    return site->attributes[attribute]->i64;
}

static berth_status check_attributes(const berth_op_site *site) {
    const int64_t head_size = berth_last_dim(site->inputs[QUERY]).b;
    const int64_t rotary_dim = number(site, ROTARY_DIM);
    const double base = site->attributes[BASE]->f64;
    if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > head_size) {
        return BERTH_RULE_ATTRIBUTE(site, ROTARY_DIM, "must be even, 2 to %lld, is %lld",
                                    (long long)head_size, (long long)rotary_dim);
    }
    if (number(site, MAX_POSITION_EMBEDDINGS) < 1) {
        return BERTH_RULE_ATTRIBUTE(site, MAX_POSITION_EMBEDDINGS, "must be at least 1, is %lld",
                                    (long long)number(site, MAX_POSITION_EMBEDDINGS));
    }
    if (!(base > 0 && isfinite(base))) {
        return BERTH_RULE_ATTRIBUTE(site, BASE, "must be finite and above 0, is %g", base);
    }
    if (number(site, CHUNK_SIZE) < 1) {
        return BERTH_RULE_ATTRIBUTE(site, CHUNK_SIZE, "must be at least 1, is %lld",
                                    (long long)number(site, CHUNK_SIZE));
    }
    if (number(site, LOCAL_SIZE) < 0 || number(site, LOCAL_SIZE) >= number(site, CHUNK_SIZE)) {
        return BERTH_RULE_ATTRIBUTE(site, LOCAL_SIZE, "must be 0 to chunk_size − 1, is %lld",
                                    (long long)number(site, LOCAL_SIZE));
    }
    return BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_integer(site, POSITIONS));
    BERTH_RULE_TRY(berth_rule_rank(site, POSITIONS, 1));
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    for (uint64_t input = QUERY; input <= KEY; ++input) {
        BERTH_RULE_TRY(berth_rule_same_dtype(site, input, QUERY));
        BERTH_RULE_TRY(berth_rule_rank(site, input, 3));
        BERTH_RULE_TRY(berth_rule_width(site, input));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 0, site->inputs[POSITIONS]->dims[0]));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 2, berth_last_dim(site->inputs[QUERY])));
    }
    BERTH_RULE_TRY(check_attributes(site));
    const berth_dim heads = site->inputs[QUERY]->dims[1];
    if (heads.symbol != BERTH_SYMBOL_NONE) {
        return BERTH_RULE_FAIL(site, QUERY, "must have a constant number of heads");
    }
    berth_value_type *query = berth_rule_give(out, site->inputs[QUERY]);
    query->ndim = 2;
    query->dims[1] = BERTH_DIM_CONST(VERSIONS * heads.b * berth_last_dim(site->inputs[QUERY]).b);
    berth_rule_give(out, site->inputs[KEY]);
    return BERTH_OK;
}

// Cosines, then sines of a distance.
static void fill_circle(const berth_op_site *site, int64_t distance, berth_dtype dtype,
                        float *circle) {
    const int64_t rotary_dim = number(site, ROTARY_DIM);
    const float base = (float)site->attributes[BASE]->f64;
    for (int64_t i = 0; i < rotary_dim / 2; ++i) {
        const float period = powf(base, (float)(2 * i) / (float)rotary_dim);
        const float angle = (float)distance * (1 / period);
        circle[i] = berth_round_to(dtype, cosf(angle));
        circle[rotary_dim / 2 + i] = berth_round_to(dtype, sinf(angle));
    }
}

// Head `head` of a token, turned, to columns [first, …) of row `token` of `out`.
static void rotate(const berth_op_site *site, const float *circle, const berth_tensor *x,
                   int64_t head, void *out) {
    const int64_t half = number(site, ROTARY_DIM) / 2;
    const int64_t step = number(site, IS_NEOX_STYLE) != 0 ? 1 : 2;
    const int64_t distance = step == 1 ? half : 1;
    const void *from = berth_row(x, head);
    const berth_dtype dtype = x->dtype;
    for (int64_t i = 0; i < x->shape[2]; ++i) {
        berth_store_at(out, dtype, i, berth_load_at(from, dtype, i));
    }
    for (int64_t i = 0; i < half; ++i) {
        const float x1 = berth_load_at(from, dtype, i * step);
        const float x2 = berth_load_at(from, dtype, i * step + distance);
        const float c = circle[i];
        const float s = circle[half + i];
        berth_store_at(out, dtype, i * step,
                       berth_round_to(dtype, x1 * c) - berth_round_to(dtype, x2 * s));
        berth_store_at(out, dtype, i * step + distance,
                       berth_round_to(dtype, x2 * c) + berth_round_to(dtype, x1 * s));
    }
}

// All heads of a token, from element `first` of its row of `out` on.
static void rotate_token(const berth_op_site *site, const float *circle, const berth_tensor *x,
                         int64_t token, void *out) {
    const int64_t element_bytes = BERTH_DTYPE_BITS(x->dtype) / 8;
    for (int64_t head = 0; head < x->shape[1]; ++head) {
        rotate(site, circle, x, token * x->shape[1] + head,
               (char *)out + head * x->shape[2] * element_bytes);
    }
}

static int64_t at_most(int64_t value, int64_t limit) {
    return value < limit ? value : limit;
}

static void rotate_query(const berth_op_site *site, const berth_op_args *args, int64_t token,
                         int64_t place, float *circle) {
    const berth_tensor *query = args->inputs[QUERY];
    const int64_t chunk = number(site, CHUNK_SIZE);
    const int64_t length = chunk - number(site, LOCAL_SIZE);
    const int64_t distances[VERSIONS] = {
        place,
        at_most(place + length, chunk),
        at_most(2 * length - 1, chunk),
        place + length,
        place + chunk,
    };
    const int64_t bytes =
        query->shape[1] * query->shape[2] * (int64_t)(BERTH_DTYPE_BITS(query->dtype) / 8);
    for (int64_t version = 0; version < VERSIONS; ++version) {
        fill_circle(site, distances[version], query->dtype, circle);
        rotate_token(site, circle, query, token,
                     (char *)berth_row(args->outputs[0], token) + version * bytes);
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)number(site, ROTARY_DIM) * sizeof(float);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *positions = args->inputs[POSITIONS];
    const berth_tensor *key = args->inputs[KEY];
    const int64_t length = number(site, CHUNK_SIZE) - number(site, LOCAL_SIZE);
    float *circle = berth_data(args->workspace); // [rotary_dim]
    for (int64_t token = 0; token < positions->shape[0]; ++token) {
        const int64_t position = berth_integer_at(berth_data(positions), positions->dtype, token);
        if (position < 0 || position >= number(site, MAX_POSITION_EMBEDDINGS)) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "dual_chunk_rotary_embedding: position %lld is not below %lld",
                                     (long long)position,
                                     (long long)number(site, MAX_POSITION_EMBEDDINGS));
        }
        fill_circle(site, position % length, key->dtype, circle);
        rotate_token(site, circle, key, token, berth_row(args->outputs[1], token * key->shape[1]));
        rotate_query(site, args, token, position % length, circle);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("positions"),
    BERTH_STRIDED_INPUT("query"),
    BERTH_STRIDED_INPUT("key"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("rotary_dim", BERTH_ATTRIBUTE_I64),
    BERTH_REQUIRED_ATTRIBUTE("max_position_embeddings", BERTH_ATTRIBUTE_I64),
    BERTH_OPTIONAL_ATTRIBUTE("base", BERTH_ATTRIBUTE_F64, .f64 = 10000.0),
    BERTH_OPTIONAL_ATTRIBUTE("is_neox_style", BERTH_ATTRIBUTE_BOOL, .i64 = 1),
    BERTH_REQUIRED_ATTRIBUTE("chunk_size", BERTH_ATTRIBUTE_I64),
    BERTH_REQUIRED_ATTRIBUTE("local_size", BERTH_ATTRIBUTE_I64),
};

const berth_op berth_op_dual_chunk_rotary_embedding = {
    .size = sizeof(berth_op),
    .name = "dual_chunk_rotary_embedding",
    .class_name = "DualChunkRotaryEmbedding",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
    .has_decomposition = 1,
};
