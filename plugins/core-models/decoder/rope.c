// SPDX-License-Identifier: Apache-2.0
// Input: rope_parameters of config.json. Output: the attributes of rotary_embedding, whose names
// are the same words, and how long a sequence may be.
#include "decoder.h"

#include <math.h>
#include <string.h>

// What a rope type reads besides rope_theta; the op knows what may be absent.
typedef struct rope_key {
    const char *type;
    const char *name;
    uint64_t kind; // BERTH_ATTRIBUTE_*
    uint64_t is_needed;
} rope_key;

#define KEY(of_type, key_name, key_kind, needed)                                                   \
    {                                                                                              \
        .type = (of_type), .name = (key_name), .kind = BERTH_ATTRIBUTE_##key_kind,                 \
        .is_needed = (needed)                                                                      \
    }

#define MAX_NUMBER 1e9

static const rope_key keys[] = {
    KEY("linear", "factor", F64, 1),
    KEY("dynamic", "factor", F64, 0),
    KEY("dynamic", "max_trained_positions", I64, 0),
    KEY("dynamic", "alpha", F64, 0),
    KEY("llama3", "factor", F64, 1),
    KEY("llama3", "low_freq_factor", F64, 1),
    KEY("llama3", "high_freq_factor", F64, 1),
    KEY("llama3", "original_max_position_embeddings", I64, 1),
    KEY("yarn", "factor", F64, 1),
    KEY("yarn", "original_max_position_embeddings", I64, 1),
    KEY("yarn", "beta_fast", F64, 0),
    KEY("yarn", "beta_slow", F64, 0),
    KEY("yarn", "truncate", BOOL, 0),
    KEY("yarn", "attention_factor", F64, 0),
    KEY("yarn", "mscale", F64, 0),
    KEY("yarn", "mscale_all_dim", F64, 0),
    KEY("longrope", "original_max_position_embeddings", I64, 1),
    KEY("longrope", "short_mscale", F64, 0),
    KEY("longrope", "long_mscale", F64, 0),
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

// A rope that is being read.
typedef struct reading {
    berth_builder *builder;
    berth_decoder *decoder;
    berth_decoder_rope *rope;
    const char *key; // of config.json
} reading;

static const char *path_of(const reading *at, const char *name) {
    return berth_build_name(at->builder, "%s.%s", at->key, name);
}

static int is_known(const char *type) {
    int is_there = strcmp(type, "default") == 0;
    for (size_t i = 0; i < KEY_COUNT; ++i) {
        is_there = is_there || strcmp(keys[i].type, type) == 0;
    }
    return is_there;
}

// What would make this another rope than its type says.
static void check_type(const reading *at, const char *type) {
    static const char *const others[] = {"mrope_section", "full_attention", "sliding_attention"};
    berth_builder *builder = at->builder;
    uint64_t count = 0;
    if (!is_known(type)) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "config.json: rope_type '%s'; this release knows default, linear, "
                         "dynamic, llama3, yarn and longrope",
                         type);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
        const char *path = path_of(at, others[i]);
        if (builder->host->json_get_count(builder->config, path, &count) == BERTH_OK) {
            berth_build_fail(builder, BERTH_UNSUPPORTED,
                             "config.json: %s; this architecture is built without it", path);
        }
    }
}

static void add(const reading *at, berth_attribute attribute) {
    attribute.size = sizeof attribute;
    at->rope->attributes[at->rope->count++] = attribute;
}

// All of them are factors or counts: nothing is one at 0 and below, and beyond the limit angles are
// no numbers any more.
static void check_number(const reading *at, const char *path, double value) {
    if (!(value > 0 && value <= MAX_NUMBER)) {
        berth_build_fail(at->builder, BERTH_CORRUPT,
                         "config.json: '%s' is %g, must be above 0 and at most %g", path, value,
                         MAX_NUMBER);
    }
}

// The number under the key; absent when nobody gave it and nobody needs it.
static void add_key(const reading *at, const rope_key *key) {
    berth_builder *builder = at->builder;
    const berth_host *host = builder->host;
    const char *path = path_of(at, key->name);
    berth_attribute found = {.name = key->name, .kind = key->kind};
    const berth_status status =
        key->kind == BERTH_ATTRIBUTE_F64   ? host->json_get_f64(builder->config, path, &found.f64)
        : key->kind == BERTH_ATTRIBUTE_I64 ? host->json_get_i64(builder->config, path, &found.i64)
                                           : host->json_get_bool(builder->config, path, &found.i64);
    if (status == BERTH_OK && key->kind != BERTH_ATTRIBUTE_BOOL) {
        check_number(at, path, key->kind == BERTH_ATTRIBUTE_F64 ? found.f64 : (double)found.i64);
    }
    if (status == BERTH_OK) {
        add(at, found);
    } else if (status != BERTH_NOT_FOUND) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is not a number or bool", path);
    } else if (key->is_needed) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: '%s' is missing, rope_type '%s' needs it", path, key->type);
    }
}

static double number_of(const reading *at, const char *name, double fallback) {
    const berth_attribute *found = NULL;
    for (uint64_t i = 0; i < at->rope->count; ++i) {
        const berth_attribute *one = &at->rope->attributes[i];
        found = strcmp(one->name, name) == 0 ? one : found;
    }
    return !found ? fallback : found->kind == BERTH_ATTRIBUTE_F64 ? found->f64 : (double)found->i64;
}

// ---- longrope -----------------------------------------------------------------------------------

// A factor for every pair.
static void add_factors(const reading *at, const char *name, double *room) {
    const uint64_t pairs = (uint64_t)number_of(at, "rotary_dim", 2) / 2;
    const berth_host *host = at->builder->host;
    uint64_t count = 0;
    if (host->json_get_count(at->builder->config, path_of(at, name), &count) != BERTH_OK ||
        count != pairs || pairs > BERTH_DECODER_PAIRS) {
        berth_build_fail(at->builder, BERTH_CORRUPT,
                         "config.json: '%s' must be a list of %llu numbers, at most %d",
                         path_of(at, name), (unsigned long long)pairs, BERTH_DECODER_PAIRS);
        return;
    }
    for (uint64_t i = 0; i < count; ++i) {
        const char *path =
            berth_build_name(at->builder, "%s.%s.%llu", at->key, name, (unsigned long long)i);
        room[i] = berth_config_f64_or(at->builder, path, 0);
        check_number(at, path, room[i]);
    }
    add(at, (berth_attribute){
                .name = name, .kind = BERTH_ATTRIBUTE_F64S, .f64s = room, .count = count});
}

// By how much attention is sharper over the longer context, where config.json says so itself.
static void add_sharpness(const reading *at) {
    const double trained = number_of(at, "original_max_position_embeddings", 1);
    const double factor = berth_config_f64_or(at->builder, path_of(at, "factor"), 0);
    const double usual = factor > 1 ? sqrt(1 + log(factor) / log(trained)) : 1;
    const double sharpness =
        berth_config_f64_or(at->builder, path_of(at, "attention_factor"), factor > 0 ? usual : 0);
    static const char *const names[] = {"short_mscale", "long_mscale"};
    for (size_t i = 0; sharpness > 0 && i < sizeof names / sizeof names[0]; ++i) {
        if (number_of(at, names[i], 0) == 0) { // no scale of its own
            add(at, *BERTH_F64(names[i], sharpness));
        }
    }
}

static void add_longrope(const reading *at) {
    add_factors(at, "short_factor", at->rope->factors[0]);
    add_factors(at, "long_factor", at->rope->factors[1]);
    add_sharpness(at);
    if (BERTH_HAS(at->builder, max_model_len) && at->builder->max_model_len > 0) {
        add(at, *BERTH_I64("max_model_len", at->builder->max_model_len));
        return;
    }
    const int64_t trained = (int64_t)number_of(at, "original_max_position_embeddings", 1);
    if (at->decoder->context_length > trained) {
        BERTH_PLUGIN_LOG(at->builder->host, BERTH_LOG_INFO, "longrope",
                         "%lld positions take long_factor; --max-model-len of at most %lld takes "
                         "short_factor, as transformers does for sequences of that length",
                         (long long)at->decoder->context_length, (long long)trained);
    }
}

// ---- all of them --------------------------------------------------------------------------------

// Linear and yarn stretch the length that was trained, of which max_position_embeddings need not
// know.
static void stretch(const reading *at, const char *type) {
    berth_decoder *decoder = at->decoder;
    const int is_yarn = strcmp(type, "yarn") == 0;
    const double trained = is_yarn ? number_of(at, "original_max_position_embeddings", 1)
                                   : (double)decoder->context_length;
    const double length = trained * number_of(at, "factor", 1);
    if (!is_yarn && strcmp(type, "linear") != 0) {
        return;
    }
    if (length >= 1 && length <= (double)BERTH_CONFIG_COUNT_MAX) {
        decoder->context_length = (int64_t)length;
    } else {
        berth_build_fail(at->builder, BERTH_CORRUPT,
                         "config.json: %s give %g positions, must be 1 to %lld", at->key, length,
                         (long long)BERTH_CONFIG_COUNT_MAX);
    }
}

// Between the two lie the wavelengths that are stretched in part.
static void check_bands(const reading *at) {
    const double low = number_of(at, "low_freq_factor", 0);
    const double high = number_of(at, "high_freq_factor", 1);
    if (!(low < high)) {
        berth_build_fail(at->builder, BERTH_CORRUPT,
                         "config.json: '%s.high_freq_factor' is %g, must be above "
                         "low_freq_factor, which is %g",
                         at->key, high, low);
    }
}

static double read_theta(const reading *at) {
    const char *path = path_of(at, "rope_theta");
    const double usual = at->decoder->rope_theta > 0 ? at->decoder->rope_theta : 10000;
    const double theta = berth_config_f64_or(at->builder, path, usual);
    if (!(theta >= 1)) {
        berth_build_fail(at->builder, BERTH_CORRUPT, "config.json: '%s' is %g, must be 1 or more",
                         path, theta);
    }
    return theta;
}

// A part of every architecture's heads may be turned, as in vLLM; transformers reads the key in
// some of them only and leaves it unread in the others.
static int64_t read_rotary_dim(const reading *at) {
    const int64_t head_size = at->decoder->head_size;
    const double usual = at->decoder->rotary_part > 0 ? at->decoder->rotary_part : 1;
    const char *path = path_of(at, "partial_rotary_factor");
    const double part = berth_config_f64_or(at->builder, path, usual);
    const int64_t dim = part > 0 && part <= 1 ? (int64_t)((double)head_size * part) : 0;
    if (part == 1 && dim % 2 != 0) {
        berth_build_fail(at->builder, BERTH_CORRUPT,
                         "config.json: 'head_dim' is %lld, all of which is rotated: must be even",
                         (long long)head_size);
    } else if (dim < 2 || dim % 2 != 0) {
        berth_build_fail(at->builder, BERTH_CORRUPT,
                         "config.json: '%s' is %g: of a head of %lld elements an even number from "
                         "2 on must be rotated",
                         path, part, (long long)head_size);
    }
    return dim;
}

// The type and what it reads.
static const char *read_type(const reading *at) {
    const berth_decoder *decoder = at->decoder;
    const berth_json *found = NULL;
    if (decoder->usual_rope_count > 0 &&
        at->builder->host->json_get_member(at->builder->config, at->key, &found) != BERTH_OK) {
        for (uint64_t i = 0; i < decoder->usual_rope_count; ++i) {
            add(at, decoder->usual_rope[i]);
        }
        return decoder->usual_rope[0].str;
    }
    const char *type = berth_config_str_or(at->builder, path_of(at, "rope_type"), "default");
    check_type(at, type);
    add(at, *BERTH_TEXT("rope_type", type));
    for (size_t i = 0; i < KEY_COUNT; ++i) {
        if (strcmp(keys[i].type, type) == 0) {
            add_key(at, &keys[i]);
        }
    }
    return type;
}

void berth_decoder_read_rope(berth_builder *builder, berth_decoder *decoder, const char *key,
                             berth_decoder_rope *rope) {
    const reading at = {.builder = builder, .decoder = decoder, .rope = rope, .key = key};
    // The first: latent attention has its own.
    add(&at, *BERTH_I64("rotary_dim", read_rotary_dim(&at)));
    const char *type = read_type(&at);
    add(&at, *BERTH_I64("max_position", decoder->context_length));
    add(&at, *BERTH_F64("base", read_theta(&at)));
    add(&at, *BERTH_BOOL("is_neox_style", !decoder->turns_neighbours));
    if (strcmp(type, "longrope") == 0) {
        add_longrope(&at);
    }
    check_bands(&at);
    stretch(&at, type);
}
