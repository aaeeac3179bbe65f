// SPDX-License-Identifier: Apache-2.0
// rotary_embedding: rotates pairs of each head's first `rotary_dim` elements by an angle that grows
// with the token's position; the other elements pass through.
//
//   positions      [tokens]                 i32 or i64, 0 to max_position − 1
//   query          [tokens, heads, d]       f32, f16 or bf16
//   key            [tokens, kv_heads, d]    optional, query's dtype
//   cos_sin_cache  [max_position, rotary_dim]  optional: rows of cosines, then sines, to be used
//                                           instead of the computed ones; any float dtype
//   query_out, key_out                      like query and key
//
// With R = rotary_dim, pair i of a head is (i, i + R/2) in neox style, (2i, 2i + 1) otherwise:
//   o1 = x1·cos − x2·sin,  o2 = x2·cos + x1·sin,  angle = position · base^(−2i/R).
// Cosine and sine are f32 rounded to query's dtype, products and sums too: three roundings, vLLM's
// RotaryEmbedding.forward_native. Its device kernels round once, which is within the tolerance.
//
// `rope_type` names how the angles come about. An implementation refuses a type it does not know;
// so a later schema may add types, with attributes of their own, and leave the revision.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

enum { POSITIONS, QUERY, KEY, CACHE };
enum { ROTARY_DIM, MAX_POSITION, BASE, IS_NEOX_STYLE, ROPE_TYPE };

static berth_status check_heads(const berth_op_site *site, uint64_t input) {
    BERTH_RULE_TRY(berth_rule_rank(site, input, 3));
    BERTH_RULE_TRY(berth_rule_width(site, input));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, site->inputs[POSITIONS]->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 2, berth_last_dim(site->inputs[QUERY])));
    return berth_rule_same_dtype(site, input, QUERY);
}

static berth_status check_attributes(const berth_op_site *site) {
    const int64_t head_size = berth_last_dim(site->inputs[QUERY]).b;
    const int64_t rotary_dim = site->attributes[ROTARY_DIM]->i64;
    const double base = site->attributes[BASE]->f64;
    const char *rope_type = site->attributes[ROPE_TYPE]->str;
    if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > head_size) {
        return BERTH_RULE_ATTRIBUTE(site, ROTARY_DIM, "must be even, 2 to %lld, is %lld",
                                    (long long)head_size, (long long)rotary_dim);
    }
    if (site->attributes[MAX_POSITION]->i64 < 1) {
        return BERTH_RULE_ATTRIBUTE(site, MAX_POSITION, "must be at least 1, is %lld",
                                    (long long)site->attributes[MAX_POSITION]->i64);
    }
    if (!(base > 0 && isfinite(base))) {
        return BERTH_RULE_ATTRIBUTE(site, BASE, "must be finite and above 0, is %g", base);
    }
    if (strcmp(rope_type, "default") != 0) {
        return BERTH_RULE_ATTRIBUTE(site, ROPE_TYPE, "must be 'default', is '%s'", rope_type);
    }
    return BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_integer(site, POSITIONS));
    BERTH_RULE_TRY(berth_rule_rank(site, POSITIONS, 1));
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    BERTH_RULE_TRY(check_heads(site, QUERY));
    BERTH_RULE_TRY(check_heads(site, KEY));
    BERTH_RULE_TRY(check_attributes(site));
    BERTH_RULE_TRY(berth_rule_float(site, CACHE));
    BERTH_RULE_TRY(berth_rule_rank(site, CACHE, 2));
    BERTH_RULE_TRY(
        berth_rule_dim(site, CACHE, 0, BERTH_DIM_CONST(site->attributes[MAX_POSITION]->i64)));
    BERTH_RULE_TRY(
        berth_rule_dim(site, CACHE, 1, BERTH_DIM_CONST(site->attributes[ROTARY_DIM]->i64)));
    berth_rule_give(out, site->inputs[QUERY]);
    if (site->inputs[KEY]) {
        berth_rule_give(out, site->inputs[KEY]);
    }
    return BERTH_OK;
}

// The angles of one token: cosines [R/2], then sines [R/2], in the workspace.
static void fill_angles(const berth_op_site *site, const berth_op_args *args, int64_t position,
                        float *angles) {
    const int64_t rotary_dim = site->attributes[ROTARY_DIM]->i64;
    const berth_tensor *cache = args->inputs[CACHE];
    const berth_dtype dtype = args->inputs[QUERY]->dtype;
    if (cache) {
        berth_load(berth_row(cache, position), cache->dtype, 0, rotary_dim, angles);
    }
    for (int64_t i = 0; i < rotary_dim / 2 && !cache; ++i) {
        const float exponent = (float)(2 * i) / (float)rotary_dim;
        const float frequency = 1.0f / powf((float)site->attributes[BASE]->f64, exponent);
        const float angle = (float)position * frequency;
        angles[i] = cosf(angle);
        angles[rotary_dim / 2 + i] = sinf(angle);
    }
    for (int64_t i = 0; i < rotary_dim; ++i) {
        angles[i] = berth_round_to(dtype, angles[i]);
    }
}

// One head; `stride` is the distance of the two elements of a pair, 1 or R/2.
static void rotate(const berth_op_site *site, const float *angles, const void *x, void *out,
                   berth_dtype dtype) {
    const int64_t half = site->attributes[ROTARY_DIM]->i64 / 2;
    const int is_neox = site->attributes[IS_NEOX_STYLE]->i64 != 0;
    for (int64_t i = 0; i < half; ++i) {
        const int64_t first = is_neox ? i : 2 * i;
        const int64_t second = is_neox ? i + half : 2 * i + 1;
        const float x1 = berth_load_at(x, dtype, first);
        const float x2 = berth_load_at(x, dtype, second);
        const float cosine = angles[i];
        const float sine = angles[half + i];
        berth_store_at(out, dtype, first,
                       berth_round_to(dtype, x1 * cosine) - berth_round_to(dtype, x2 * sine));
        berth_store_at(out, dtype, second,
                       berth_round_to(dtype, x2 * cosine) + berth_round_to(dtype, x1 * sine));
    }
}

// All heads of one token.
static void rotate_heads(const berth_op_site *site, const float *angles, int64_t token,
                         const berth_tensor *x, const berth_tensor *out) {
    const int64_t heads = x->shape[1];
    const int64_t rotary_dim = site->attributes[ROTARY_DIM]->i64;
    for (int64_t head = 0; head < heads; ++head) {
        const void *from = berth_row(x, token * heads + head);
        void *to = berth_row(out, token * heads + head);
        rotate(site, angles, from, to, x->dtype);
        for (int64_t i = rotary_dim; i < x->shape[2]; ++i) {
            berth_store_at(to, x->dtype, i, berth_load_at(from, x->dtype, i));
        }
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)site->attributes[ROTARY_DIM]->i64 * sizeof(float);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *positions = args->inputs[POSITIONS];
    const berth_tensor *key = args->inputs[KEY];
    const void *position_row = berth_data(positions);
    float *angles = berth_data(args->workspace);
    for (int64_t token = 0; token < positions->shape[0]; ++token) {
        const int64_t position = berth_integer_at(position_row, positions->dtype, token);
        if (position < 0 || position >= site->attributes[MAX_POSITION]->i64) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "rotary_embedding: position %lld is not below %lld",
                                     (long long)position,
                                     (long long)site->attributes[MAX_POSITION]->i64);
        }
        fill_angles(site, args, position, angles);
        rotate_heads(site, angles, token, args->inputs[QUERY], args->outputs[0]);
        if (key) {
            rotate_heads(site, angles, token, key, args->outputs[1]);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("positions"),
    BERTH_STRIDED_INPUT("query"),
    BERTH_OPTIONAL_STRIDED_INPUT("key"),
    BERTH_OPTIONAL_INPUT("cos_sin_cache"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("rotary_dim", BERTH_ATTRIBUTE_I64),
    BERTH_REQUIRED_ATTRIBUTE("max_position", BERTH_ATTRIBUTE_I64),
    BERTH_OPTIONAL_ATTRIBUTE("base", BERTH_ATTRIBUTE_F64, .f64 = 10000.0),
    BERTH_OPTIONAL_ATTRIBUTE("is_neox_style", BERTH_ATTRIBUTE_BOOL, .i64 = 1),
    BERTH_OPTIONAL_ATTRIBUTE("rope_type", BERTH_ATTRIBUTE_STR, .str = "default"),
};

const berth_op berth_op_rotary_embedding = {
    .size = sizeof(berth_op),
    .name = "rotary_embedding",
    .class_name = "RotaryEmbedding",
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
