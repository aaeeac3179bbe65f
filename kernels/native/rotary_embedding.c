// SPDX-License-Identifier: Apache-2.0
// rotary_embedding: rotates pairs of each head by an angle that grows with the token's position;
// elements beyond the first `rotary_dim` pass through.
//
//   positions      [tokens] or [3, tokens]  i32 or i64, below the length of the rope; three axes
//                                           (time, height, width) only with `mrope_section`
//   query          [tokens, heads, d]       f32, f16 or bf16
//   key            [tokens, kv_heads, d]    optional, query's dtype
//   cos_sin_cache  [length, 2·pairs]        optional: rows of cosines, then sines, to be used
//                                           instead of the computed ones; any float dtype; of fope
//                                           [length, fope heads, 2·pairs]; of longrope the short
//                                           rope's rows, then the long one's
//   cos_coef, sin_coef [fope heads, m, m]   fope only
//   query_out, key_out                      like query and key
//
// With P pairs, pair i of a head is (i, i + P) in neox style, (2i, 2i + 1) otherwise:
//   o1 = x1·cos − x2·sin,  o2 = x2·cos + x1·sin.
// P is rotary_dim / 2; of proportional and fope half the head, of mllama4 rotary_dim. With
// `is_deepseek_v4` the last columns are rotated, not the first; `inverse` turns back.
// Cosine and sine are f32 rounded to query's dtype, products and sums too: three roundings, vLLM's
// RotaryEmbedding.forward_native. Its device kernels round once, which is within the tolerance.
// deepseek_yarn, openpangu, ernie_vl, fope, longrope and mllama4 use the cache as it is; where that
// is f32 all is f32 and the result is rounded to query's dtype, as vLLM's device path does (its
// native one would give f32).
//
// `rope_type` names how the angles come about, the attributes after it are for some types only and
// have the names of Hugging Face's rope_parameters: rope.h says what they mean. Which axis turns a
// pair: rope/circle.c. An implementation refuses a type it does not know; so a later schema may add
// types, with attributes of their own, and leave the revision.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

#include "rope/attributes.h"
#include "rope/circle.h"

enum {
    POSITIONS = BERTH_ROPE_POSITIONS,
    QUERY = BERTH_ROPE_QUERY,
    KEY = BERTH_ROPE_KEY,
    CACHE = BERTH_ROPE_CACHE,
    COS_COEF = BERTH_ROPE_COS_COEF,
    SIN_COEF = BERTH_ROPE_SIN_COEF,
};
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
    MIXED_B,
    PARTIAL_ROTARY_FACTOR,
    SHORT_FACTOR,
    LONG_FACTOR,
    SHORT_MSCALE,
    LONG_MSCALE,
    MAX_MODEL_LEN,
    NUM_INV_FREQ,
    IS_DEEPSEEK_V4,
    INVERSE,
    MROPE_SECTION,
    MROPE_INTERLEAVED,
    MROPE_POSITIONS_FACTOR,
    ATTRIBUTE_COUNT,
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

#define YARN  (BIT(FACTOR) | BIT(ORIGINAL_MAX_POSITION_EMBEDDINGS))
#define BETAS (BIT(BETA_FAST) | BIT(BETA_SLOW) | BIT(MSCALE) | BIT(MSCALE_ALL_DIM))
#define AXES  (BIT(MROPE_SECTION) | BIT(MROPE_INTERLEAVED) | BIT(MROPE_POSITIONS_FACTOR))

// Why a macro: clang-format 14 pulls rows that differ in the number of members apart.
#define TYPE(...)                                                                                  \
    { __VA_ARGS__ }

static const rope_type types[] = {
    TYPE(.name = "default", .allowed = AXES),
    TYPE(.name = "linear", .needed = BIT(FACTOR)),
    TYPE(.name = "ntk", .needed = BIT(FACTOR), .allowed = BIT(MIXED_B)),
    TYPE(.name = "dynamic", .allowed = BIT(FACTOR) | BIT(MAX_TRAINED_POSITIONS) | BIT(ALPHA)),
    TYPE(.name = "llama3", .needed = BIT(FACTOR) | BIT(LOW_FREQ_FACTOR) | BIT(HIGH_FREQ_FACTOR) |
                                     BIT(ORIGINAL_MAX_POSITION_EMBEDDINGS)),
    TYPE(.name = "yarn", .needed = YARN,
         .allowed = BETAS | BIT(TRUNCATE) | BIT(ATTENTION_FACTOR) | AXES),
    TYPE(.name = "deepseek_yarn", .needed = YARN, .allowed = BETAS | BIT(IS_DEEPSEEK_V4)),
    TYPE(.name = "longrope",
         .needed = BIT(ORIGINAL_MAX_POSITION_EMBEDDINGS) | BIT(SHORT_FACTOR) | BIT(LONG_FACTOR),
         .allowed = BIT(SHORT_MSCALE) | BIT(LONG_MSCALE) | BIT(MAX_MODEL_LEN)),
    TYPE(.name = "proportional", .needed = BIT(PARTIAL_ROTARY_FACTOR)),
    TYPE(.name = "mllama4"),
    TYPE(.name = "openpangu", .needed = BIT(MROPE_SECTION), .allowed = AXES),
    TYPE(.name = "bailing_mrope", .needed = BIT(MROPE_SECTION), .allowed = AXES),
    TYPE(.name = "ernie_vl", .needed = BIT(MROPE_SECTION), .allowed = AXES),
    TYPE(.name = "fope", .allowed = BIT(NUM_INV_FREQ)),
};
#define TYPE_COUNT (sizeof types / sizeof types[0])
#define TYPE_NAMES                                                                                 \
    "default, linear, ntk, dynamic, llama3, yarn, deepseek_yarn, longrope, proportional, "         \
    "mllama4, openpangu, bailing_mrope, ernie_vl or fope"

static berth_status check_heads(const berth_op_site *site, uint64_t input) {
    const berth_value_type *positions = site->inputs[POSITIONS];
    BERTH_RULE_TRY(berth_rule_rank(site, input, 3));
    BERTH_RULE_TRY(berth_rule_width(site, input));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, berth_last_dim(positions)));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 2, berth_last_dim(site->inputs[QUERY])));
    return berth_rule_same_dtype(site, input, QUERY);
}

static int is_given(const berth_op_site *site, uint64_t attribute) {
    return site->attributes[attribute]->kind != BERTH_ATTRIBUTE_NONE;
}

// A number that the type may have: finite and above 0; an mscale of 0 is none.
static berth_status check_number(const berth_op_site *site, uint64_t attribute) {
    const uint64_t kind = site->attributes[attribute]->kind;
    const double value = berth_rope_number(site, site->op->attributes[attribute]->name, 1);
    const int is_number = kind == BERTH_ATTRIBUTE_I64 || kind == BERTH_ATTRIBUTE_F64;
    const int may_be_zero = attribute == MSCALE || attribute == MSCALE_ALL_DIM;
    return !is_number || ((value > 0 || (value == 0 && may_be_zero)) && isfinite(value))
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be finite and above 0, is %g", value);
}

// The attributes that the type needs are there, and no others.
static berth_status check_type(const berth_op_site *site) {
    const char *name = site->attributes[ROPE_TYPE]->str;
    size_t type = 0;
    while (type < TYPE_COUNT && strcmp(types[type].name, name) != 0) {
        ++type;
    }
    if (type == TYPE_COUNT) {
        return BERTH_RULE_ATTRIBUTE(site, ROPE_TYPE, "must be " TYPE_NAMES ", is '%s'", name);
    }
    for (uint64_t i = FACTOR; i < ATTRIBUTE_COUNT; ++i) {
        if (!is_given(site, i) && types[type].needed & BIT(i)) {
            return BERTH_RULE_ATTRIBUTE(site, i, "must be there for rope_type '%s'", name);
        }
        if (is_given(site, i) && i != INVERSE &&
            !((types[type].needed | types[type].allowed) & BIT(i))) {
            return BERTH_RULE_ATTRIBUTE(site, i, "means nothing to rope_type '%s'", name);
        }
        BERTH_RULE_TRY(check_number(site, i));
    }
    return BERTH_OK;
}

// What the numbers give together.
static berth_status check_angles(const berth_op_site *site) {
    const double length = berth_rope_length(site);
    const double base = berth_rope_base(site);
    const int is_yarn = berth_rope_is_yarn(site);
    if (!(length >= 1 && length <= MAX_LENGTH)) {
        return BERTH_RULE_ATTRIBUTE(site, MAX_POSITION, "must give 1 to %.0f positions, gives %g",
                                    MAX_LENGTH, length);
    }
    if (!(base > 0 && isfinite(base)) || (is_yarn && !(base > 1))) {
        return BERTH_RULE_ATTRIBUTE(site, BASE, "must be finite and above %d, is %g", is_yarn,
                                    base);
    }
    return BERTH_OK;
}

static berth_status check_rotary_dim(const berth_op_site *site) {
    const int64_t head_size = berth_last_dim(site->inputs[QUERY]).b;
    const int64_t rotary_dim = site->attributes[ROTARY_DIM]->i64;
    const int is_half = berth_rope_is(site, "mllama4");
    const int is_whole =
        is_half || berth_rope_is(site, "proportional") || berth_rope_is(site, "fope");
    if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > head_size) {
        return BERTH_RULE_ATTRIBUTE(site, ROTARY_DIM, "must be even, 2 to %lld, is %lld",
                                    (long long)head_size, (long long)rotary_dim);
    }
    if (is_whole && rotary_dim * (1 + is_half) != head_size) {
        return BERTH_RULE_ATTRIBUTE(site, ROTARY_DIM, "must be %lld for rope_type '%s', is %lld",
                                    (long long)head_size / (1 + is_half),
                                    site->attributes[ROPE_TYPE]->str, (long long)rotary_dim);
    }
    return BERTH_OK;
}

// Lists that have an entry per pair, or share out the pairs.
static berth_status check_lists(const berth_op_site *site) {
    const int64_t half = site->attributes[ROTARY_DIM]->i64 / 2;
    const berth_attribute *sections = site->attributes[MROPE_SECTION];
    for (uint64_t i = SHORT_FACTOR; i <= LONG_FACTOR; ++i) {
        if (is_given(site, i) && site->attributes[i]->count != (uint64_t)half) {
            return BERTH_RULE_ATTRIBUTE(site, i, "must have %lld numbers, has %llu",
                                        (long long)half,
                                        (unsigned long long)site->attributes[i]->count);
        }
    }
    int64_t pairs = 0;
    int is_negative = 0;
    for (uint64_t i = 0; i < sections->count; ++i) {
        pairs += sections->i64s[i];
        is_negative = is_negative || sections->i64s[i] < 0;
    }
    if (is_given(site, MROPE_SECTION) && (sections->count != 3 || pairs != half || is_negative)) {
        return BERTH_RULE_ATTRIBUTE(site, MROPE_SECTION, "must be 3 parts of %lld pairs",
                                    (long long)half);
    }
    return BERTH_OK;
}

static berth_status check_attributes(const berth_op_site *site) {
    if (site->attributes[MAX_POSITION]->i64 < 1) {
        return BERTH_RULE_ATTRIBUTE(site, MAX_POSITION, "must be at least 1, is %lld",
                                    (long long)site->attributes[MAX_POSITION]->i64);
    }
    BERTH_RULE_TRY(check_type(site));
    BERTH_RULE_TRY(check_rotary_dim(site));
    BERTH_RULE_TRY(check_lists(site));
    return check_angles(site);
}

static berth_status check_positions(const berth_op_site *site) {
    const berth_value_type *positions = site->inputs[POSITIONS];
    BERTH_RULE_TRY(berth_rule_integer(site, POSITIONS));
    if (positions->ndim == 2 && is_given(site, MROPE_SECTION)) {
        return berth_rule_dim(site, POSITIONS, 0, BERTH_DIM_CONST(3));
    }
    return berth_rule_rank(site, POSITIONS, 1);
}

// Rows of the cache: of longrope, both ropes'.
static int64_t cache_rows(const berth_op_site *site) {
    return berth_rope_is(site, "longrope")
               ? (int64_t)(berth_rope_original(site) + berth_rope_number(site, "max_position", 0))
               : (int64_t)berth_rope_length(site);
}

static berth_status check_cache(const berth_op_site *site) {
    const int is_fope = berth_rope_is(site, "fope");
    BERTH_RULE_TRY(berth_rule_float(site, CACHE));
    BERTH_RULE_TRY(berth_rule_rank(site, CACHE, is_fope ? 3 : 2));
    BERTH_RULE_TRY(berth_rule_dim(site, CACHE, 0, BERTH_DIM_CONST(cache_rows(site))));
    return berth_rule_dim(site, CACHE, is_fope ? 2 : 1,
                          BERTH_DIM_CONST(2 * berth_rope_pairs(site)));
}

// fope: coefficients or a cache for heads that share out query's.
static berth_status check_coefficients(const berth_op_site *site) {
    const int is_fope = berth_rope_is(site, "fope");
    for (uint64_t input = COS_COEF; input <= SIN_COEF; ++input) {
        const int is_there = site->inputs[input] != NULL;
        if (is_there != (is_fope && !site->inputs[CACHE]) && !(is_fope && is_there)) {
            return BERTH_RULE_FAIL(site, input,
                                   "must be there for rope_type 'fope' without a "
                                   "cache, and for no other");
        }
        BERTH_RULE_TRY(berth_rule_float(site, input));
        BERTH_RULE_TRY(berth_rule_rank(site, input, 3));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 1, BERTH_DIM_CONST(berth_rope_mixed(site))));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 2, BERTH_DIM_CONST(berth_rope_mixed(site))));
    }
    const uint64_t by_head = site->inputs[CACHE] ? CACHE : COS_COEF;
    for (uint64_t input = QUERY; is_fope && input <= KEY; ++input) {
        const int64_t heads = site->inputs[input] ? site->inputs[input]->dims[1].b : 0;
        if (heads % site->inputs[by_head]->dims[1 - (by_head == COS_COEF)].b != 0) {
            return BERTH_RULE_FAIL(site, input, "must have a multiple of the heads of '%s'",
                                   site->op->inputs[by_head]->name);
        }
    }
    return BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(check_positions(site));
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    BERTH_RULE_TRY(check_heads(site, QUERY));
    BERTH_RULE_TRY(check_heads(site, KEY));
    BERTH_RULE_TRY(check_attributes(site));
    BERTH_RULE_TRY(check_cache(site));
    BERTH_RULE_TRY(check_coefficients(site));
    berth_rule_give(out, site->inputs[QUERY]);
    if (site->inputs[KEY]) {
        berth_rule_give(out, site->inputs[KEY]);
    }
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// One head, at its first column that turns.
static void rotate(const berth_circle *circle, const void *x, void *out, int64_t first) {
    const berth_op_site *site = circle->site;
    const berth_dtype dtype = circle->args->inputs[QUERY]->dtype;
    const int64_t step = site->attributes[IS_NEOX_STYLE]->i64 != 0 ? 1 : 2;
    const int64_t distance = step == 1 ? circle->pairs : 1;
    const float sign = site->attributes[INVERSE]->i64 != 0 ? -1 : 1;
    for (int64_t i = 0; i < circle->pairs; ++i) {
        const int64_t one = first + i * step;
        const float x1 = berth_load_at(x, dtype, one);
        const float x2 = berth_load_at(x, dtype, one + distance);
        const float cosine = circle->points[i];
        const float sine = sign * circle->points[circle->pairs + i];
        berth_store_at(out, dtype, one,
                       berth_round_to(circle->dtype, x1 * cosine) -
                           berth_round_to(circle->dtype, x2 * sine));
        berth_store_at(out, dtype, one + distance,
                       berth_round_to(circle->dtype, x2 * cosine) +
                           berth_round_to(circle->dtype, x1 * sine));
    }
}

// Heads of a token that read the same row: all, or those of one head of a fope.
static int64_t heads_per_circle(const berth_op_args *args, const berth_tensor *x) {
    const berth_tensor *cache = args->inputs[CACHE];
    const int64_t circles = cache && cache->ndim == 3 ? cache->shape[1]
                            : args->inputs[COS_COEF]  ? args->inputs[COS_COEF]->shape[0]
                                                      : 1;
    return x->shape[1] / circles;
}

// All heads of one token.
static berth_status rotate_heads(berth_circle *circle, int64_t token, const berth_tensor *x,
                                 const berth_tensor *out) {
    const int64_t heads = x->shape[1];
    const int64_t width = x->shape[2];
    const int64_t group = heads_per_circle(circle->args, x);
    const int is_last = berth_rope_number(circle->site, "is_deepseek_v4", 0) != 0;
    for (int64_t head = 0; head < heads; ++head) {
        const void *from = berth_row(x, token * heads + head);
        void *to = berth_row(out, token * heads + head);
        if (head % group == 0) {
            BERTH_RULE_TRY(berth_circle_fill(circle, token, head / group));
        }
        for (int64_t i = 0; i < width; ++i) {
            berth_store_at(to, x->dtype, i, berth_load_at(from, x->dtype, i));
        }
        rotate(circle, from, to, is_last ? width - 2 * circle->pairs : 0);
    }
    return BERTH_OK;
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return berth_circle_workspace(site);
}

static berth_status reference(void *self, const berth_op_args *args) {
    berth_circle circle;
    berth_circle_init(&circle, self, args);
    for (int64_t token = 0; token < args->inputs[QUERY]->shape[0]; ++token) {
        BERTH_RULE_TRY(rotate_heads(&circle, token, args->inputs[QUERY], args->outputs[0]));
        if (args->inputs[KEY]) {
            BERTH_RULE_TRY(rotate_heads(&circle, token, args->inputs[KEY], args->outputs[1]));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("positions"),
    BERTH_STRIDED_INPUT("query"),
    BERTH_OPTIONAL_STRIDED_INPUT("key"),
    BERTH_OPTIONAL_INPUT("cos_sin_cache"),
    BERTH_OPTIONAL_INPUT("cos_coef"),
    BERTH_OPTIONAL_INPUT("sin_coef"),
};
static const berth_op_attribute *const attributes[] = {BERTH_ROPE_ATTRIBUTES};

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
