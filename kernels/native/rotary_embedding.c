// SPDX-License-Identifier: Apache-2.0
// rotary_embedding: rotates pairs of each head's first `rotary_dim` elements by an angle that grows
// with the token's position; the other elements pass through.
//
//   positions      [tokens]                 i32 or i64, below the length of the rope
//   query          [tokens, heads, d]       f32, f16 or bf16
//   key            [tokens, kv_heads, d]    optional, query's dtype
//   cos_sin_cache  [length, rotary_dim]     optional: rows of cosines, then sines, to be used
//                                           instead of the computed ones; any float dtype
//   query_out, key_out                      like query and key
//
// With R = rotary_dim, pair i of a head is (i, i + R/2) in neox style, (2i, 2i + 1) otherwise:
//   o1 = x1·cos − x2·sin,  o2 = x2·cos + x1·sin.
// Cosine and sine are f32 rounded to query's dtype, products and sums too: three roundings, vLLM's
// RotaryEmbedding.forward_native. Its device kernels round once, which is within the tolerance.
//
// `rope_type` names how the angles come about, the attributes after it are for some types only and
// have the names of Hugging Face's rope_parameters: rope.h says what they mean. An implementation
// refuses a type it does not know; so a later schema may add types, with attributes of their own,
// and leave the revision.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

#include <rope.h>

enum { POSITIONS, QUERY, KEY, CACHE };
enum {
    ROTARY_DIM,
    MAX_POSITION,
    BASE,
    IS_NEOX_STYLE,
    ROPE_TYPE,
    FACTOR,
    ORIGINAL_MAX_POSITION_EMBEDDINGS,
    MAX_TRAINED_POSITIONS,
    ALPHA,
    LOW_FREQ_FACTOR,
    HIGH_FREQ_FACTOR,
    BETA_FAST,
    BETA_SLOW,
    TRUNCATE,
    ATTENTION_FACTOR,
    MSCALE,
    MSCALE_ALL_DIM,
};

#define MAX_LENGTH 0x1p31 // positions of a rope

// ---- shape rule ---------------------------------------------------------------------------------

#define BIT(attribute) (1u << (attribute))

// Which of the attributes from FACTOR on a type needs, and which it may have besides.
typedef struct rope_type {
    const char *name;
    unsigned needed;
    unsigned allowed;
} rope_type;

static const rope_type types[] = {
    {.name = "default"                                                },
    { .name = "linear",                                            .needed = BIT(FACTOR)},
    {
     .name = "dynamic",
     .allowed = BIT(FACTOR) | BIT(MAX_TRAINED_POSITIONS) | BIT(ALPHA),
     },
    {
     .name = "llama3",
     .needed = BIT(FACTOR) | BIT(LOW_FREQ_FACTOR) | BIT(HIGH_FREQ_FACTOR) |
                  BIT(ORIGINAL_MAX_POSITION_EMBEDDINGS),
     },
    {
     .name = "yarn",
     .needed = BIT(FACTOR) | BIT(ORIGINAL_MAX_POSITION_EMBEDDINGS),
     .allowed = BIT(BETA_FAST) | BIT(BETA_SLOW) | BIT(TRUNCATE) | BIT(ATTENTION_FACTOR) |
                   BIT(MSCALE) | BIT(MSCALE_ALL_DIM),
     },
};
#define TYPE_COUNT (sizeof types / sizeof types[0])

static berth_status check_heads(const berth_op_site *site, uint64_t input) {
    BERTH_RULE_TRY(berth_rule_rank(site, input, 3));
    BERTH_RULE_TRY(berth_rule_width(site, input));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, site->inputs[POSITIONS]->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 2, berth_last_dim(site->inputs[QUERY])));
    return berth_rule_same_dtype(site, input, QUERY);
}

// The attributes that the type needs are there, finite and above 0, and no others.
static berth_status check_type(const berth_op_site *site) {
    const char *name = site->attributes[ROPE_TYPE]->str;
    size_t type = 0;
    while (type < TYPE_COUNT && strcmp(types[type].name, name) != 0) {
        ++type;
    }
    if (type == TYPE_COUNT) {
        return BERTH_RULE_ATTRIBUTE(
            site, ROPE_TYPE, "must be default, linear, dynamic, llama3 or yarn, is '%s'", name);
    }
    for (uint64_t i = FACTOR; i <= MSCALE_ALL_DIM; ++i) {
        const int is_given = site->attributes[i]->kind != BERTH_ATTRIBUTE_NONE;
        if (!is_given && types[type].needed & BIT(i)) {
            return BERTH_RULE_ATTRIBUTE(site, i, "must be there for rope_type '%s'", name);
        }
        if (is_given && !((types[type].needed | types[type].allowed) & BIT(i))) {
            return BERTH_RULE_ATTRIBUTE(site, i, "means nothing to rope_type '%s'", name);
        }
        const double value = berth_rope_number(site, site->op->attributes[i]->name, 1);
        if (i != TRUNCATE && !(value > 0 && isfinite(value))) {
            return BERTH_RULE_ATTRIBUTE(site, i, "must be finite and above 0, is %g", value);
        }
    }
    return BERTH_OK;
}

// What the numbers give together.
static berth_status check_angles(const berth_op_site *site) {
    const double length = berth_rope_length(site);
    const double base = berth_rope_base(site);
    if (!(length >= 1 && length <= MAX_LENGTH)) {
        return BERTH_RULE_ATTRIBUTE(site, MAX_POSITION, "must give 1 to %.0f positions, gives %g",
                                    MAX_LENGTH, length);
    }
    if (!(base > 0 && isfinite(base)) || (berth_rope_is(site, "yarn") && !(base > 1))) {
        return BERTH_RULE_ATTRIBUTE(site, BASE, "must be finite and above %d, is %g",
                                    berth_rope_is(site, "yarn"), base);
    }
    return BERTH_OK;
}

static berth_status check_attributes(const berth_op_site *site) {
    const int64_t head_size = berth_last_dim(site->inputs[QUERY]).b;
    const int64_t rotary_dim = site->attributes[ROTARY_DIM]->i64;
    if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > head_size) {
        return BERTH_RULE_ATTRIBUTE(site, ROTARY_DIM, "must be even, 2 to %lld, is %lld",
                                    (long long)head_size, (long long)rotary_dim);
    }
    if (site->attributes[MAX_POSITION]->i64 < 1) {
        return BERTH_RULE_ATTRIBUTE(site, MAX_POSITION, "must be at least 1, is %lld",
                                    (long long)site->attributes[MAX_POSITION]->i64);
    }
    BERTH_RULE_TRY(check_type(site));
    return check_angles(site);
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
        berth_rule_dim(site, CACHE, 0, BERTH_DIM_CONST((int64_t)berth_rope_length(site))));
    BERTH_RULE_TRY(
        berth_rule_dim(site, CACHE, 1, BERTH_DIM_CONST(site->attributes[ROTARY_DIM]->i64)));
    berth_rule_give(out, site->inputs[QUERY]);
    if (site->inputs[KEY]) {
        berth_rule_give(out, site->inputs[KEY]);
    }
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// Cosines [R/2], then sines [R/2], of one token; `angles` [R/2] per position.
static void fill_circle(const berth_op_site *site, const berth_op_args *args, int64_t position,
                        const float *angles, float *circle) {
    const int64_t rotary_dim = site->attributes[ROTARY_DIM]->i64;
    const berth_tensor *cache = args->inputs[CACHE];
    const berth_dtype dtype = args->inputs[QUERY]->dtype;
    const float scale = berth_rope_scale(site);
    if (cache) {
        berth_load(berth_row(cache, position), cache->dtype, 0, rotary_dim, circle);
    }
    for (int64_t i = 0; i < rotary_dim / 2 && !cache; ++i) {
        const float angle = (float)position * angles[i];
        circle[i] = cosf(angle) * scale;
        circle[rotary_dim / 2 + i] = sinf(angle) * scale;
    }
    for (int64_t i = 0; i < rotary_dim; ++i) {
        circle[i] = berth_round_to(dtype, circle[i]);
    }
}

// One head.
static void rotate(const berth_op_site *site, const float *circle, const void *x, void *out,
                   berth_dtype dtype) {
    const int64_t half = site->attributes[ROTARY_DIM]->i64 / 2;
    const int is_neox = site->attributes[IS_NEOX_STYLE]->i64 != 0;
    for (int64_t i = 0; i < half; ++i) {
        const int64_t first = is_neox ? i : 2 * i;
        const int64_t second = is_neox ? i + half : 2 * i + 1;
        const float x1 = berth_load_at(x, dtype, first);
        const float x2 = berth_load_at(x, dtype, second);
        const float cosine = circle[i];
        const float sine = circle[half + i];
        berth_store_at(out, dtype, first,
                       berth_round_to(dtype, x1 * cosine) - berth_round_to(dtype, x2 * sine));
        berth_store_at(out, dtype, second,
                       berth_round_to(dtype, x2 * cosine) + berth_round_to(dtype, x1 * sine));
    }
}

// All heads of one token.
static void rotate_heads(const berth_op_site *site, const float *circle, int64_t token,
                         const berth_tensor *x, const berth_tensor *out) {
    const int64_t heads = x->shape[1];
    const int64_t rotary_dim = site->attributes[ROTARY_DIM]->i64;
    for (int64_t head = 0; head < heads; ++head) {
        const void *from = berth_row(x, token * heads + head);
        void *to = berth_row(out, token * heads + head);
        rotate(site, circle, from, to, x->dtype);
        for (int64_t i = rotary_dim; i < x->shape[2]; ++i) {
            berth_store_at(to, x->dtype, i, berth_load_at(from, x->dtype, i));
        }
    }
}

// The angles [R/2] of all tokens, then cosines and sines [R] of one.
static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)site->attributes[ROTARY_DIM]->i64 * 3 / 2 * sizeof(float);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *positions = args->inputs[POSITIONS];
    const int64_t length = (int64_t)berth_rope_length(site);
    float *angles = berth_data(args->workspace);
    float *circle = angles + site->attributes[ROTARY_DIM]->i64 / 2;
    berth_rope_angles(site, angles);
    for (int64_t token = 0; token < positions->shape[0]; ++token) {
        const int64_t position = berth_integer_at(berth_data(positions), positions->dtype, token);
        if (position < 0 || position >= length) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "rotary_embedding: position %lld is not below %lld",
                                     (long long)position, (long long)length);
        }
        fill_circle(site, args, position, angles, circle);
        rotate_heads(site, circle, token, args->inputs[QUERY], args->outputs[0]);
        if (args->inputs[KEY]) {
            rotate_heads(site, circle, token, args->inputs[KEY], args->outputs[1]);
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
    BERTH_ABSENT_ATTRIBUTE("factor", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("original_max_position_embeddings", BERTH_ATTRIBUTE_I64),
    BERTH_ABSENT_ATTRIBUTE("max_trained_positions", BERTH_ATTRIBUTE_I64),
    BERTH_ABSENT_ATTRIBUTE("alpha", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("low_freq_factor", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("high_freq_factor", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("beta_fast", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("beta_slow", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("truncate", BERTH_ATTRIBUTE_BOOL),
    BERTH_ABSENT_ATTRIBUTE("attention_factor", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("mscale", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("mscale_all_dim", BERTH_ATTRIBUTE_F64),
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
