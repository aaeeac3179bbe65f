// SPDX-License-Identifier: Apache-2.0
// Input: rope_parameters of config.json. Output: the attributes of rotary_embedding, whose names
// are the same words, and how long a sequence may be.
#include "decoder.h"

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
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

static int is_known(const char *type) {
    int is_there = strcmp(type, "default") == 0;
    for (size_t i = 0; i < KEY_COUNT; ++i) {
        is_there = is_there || strcmp(keys[i].type, type) == 0;
    }
    return is_there;
}

// What would make this another rope than its type says.
static void check_type(berth_builder *builder, const char *type) {
    static const char *const others[] = {"mrope_section", "full_attention", "sliding_attention"};
    uint64_t count = 0;
    if (!is_known(type)) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "config.json: rope_type '%s'; this release knows default, linear, "
                         "dynamic, llama3 and yarn",
                         type);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
        const char *path = berth_build_name(builder, "rope_parameters.%s", others[i]);
        if (builder->host->json_get_count(builder->config, path, &count) == BERTH_OK) {
            berth_build_fail(builder, BERTH_UNSUPPORTED,
                             "config.json: %s; this architecture is built without it", path);
        }
    }
}

static void add(berth_decoder *decoder, berth_attribute attribute) {
    attribute.size = sizeof attribute;
    decoder->rope[decoder->rope_count++] = attribute;
}

// All of them are factors or counts: nothing is one at 0 and below, and beyond the limit angles are
// no numbers any more.
static void check_key(berth_builder *builder, const char *path, const berth_attribute *found) {
    const double value = found->kind == BERTH_ATTRIBUTE_F64 ? found->f64 : (double)found->i64;
    if (found->kind != BERTH_ATTRIBUTE_BOOL && !(value > 0 && value <= MAX_NUMBER)) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: '%s' is %g, must be above 0 and at most %g", path, value,
                         MAX_NUMBER);
    }
}

// The number under the key; absent when nobody gave it and nobody needs it.
static void add_key(berth_builder *builder, berth_decoder *decoder, const rope_key *key) {
    const berth_host *host = builder->host;
    const char *path = berth_build_name(builder, "rope_parameters.%s", key->name);
    berth_attribute found = {.name = key->name, .kind = key->kind};
    const berth_status status =
        key->kind == BERTH_ATTRIBUTE_F64   ? host->json_get_f64(builder->config, path, &found.f64)
        : key->kind == BERTH_ATTRIBUTE_I64 ? host->json_get_i64(builder->config, path, &found.i64)
                                           : host->json_get_bool(builder->config, path, &found.i64);
    if (status == BERTH_OK) {
        check_key(builder, path, &found);
        add(decoder, found);
    } else if (status != BERTH_NOT_FOUND) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is not a number or bool", path);
    } else if (key->is_needed) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: '%s' is missing, rope_type '%s' needs it", path, key->type);
    }
}

static double number_of(const berth_decoder *decoder, const char *name, double fallback) {
    const berth_attribute *found = NULL;
    for (uint64_t i = 0; i < decoder->rope_count; ++i) {
        found = strcmp(decoder->rope[i].name, name) == 0 ? &decoder->rope[i] : found;
    }
    return !found ? fallback : found->kind == BERTH_ATTRIBUTE_F64 ? found->f64 : (double)found->i64;
}

// Linear and yarn stretch the length that was trained, of which max_position_embeddings need not
// know.
static void stretch(berth_builder *builder, berth_decoder *decoder, const char *type) {
    const int is_yarn = strcmp(type, "yarn") == 0;
    const double trained = is_yarn ? number_of(decoder, "original_max_position_embeddings", 1)
                                   : (double)decoder->context_length;
    const double length = trained * number_of(decoder, "factor", 1);
    if (!is_yarn && strcmp(type, "linear") != 0) {
        return;
    }
    if (length >= 1 && length <= (double)BERTH_CONFIG_COUNT_MAX) {
        decoder->context_length = (int64_t)length;
    } else {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: rope_parameters give %g positions, must be 1 to %lld",
                         length, (long long)BERTH_CONFIG_COUNT_MAX);
    }
}

// Between the two lie the wavelengths that are stretched in part.
static void check_bands(berth_builder *builder, const berth_decoder *decoder) {
    const double low = number_of(decoder, "low_freq_factor", 0);
    const double high = number_of(decoder, "high_freq_factor", 1);
    if (!(low < high)) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: 'rope_parameters.high_freq_factor' is %g, must be above "
                         "low_freq_factor, which is %g",
                         high, low);
    }
}

static double read_theta(berth_builder *builder) {
    const char *path = "rope_parameters.rope_theta";
    const double theta = berth_config_f64_or(builder, path, 10000);
    if (!(theta >= 1)) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is %g, must be 1 or more", path,
                         theta);
    }
    return theta;
}

static int64_t read_rotary_dim(berth_builder *builder, int64_t head_size) {
    const double part = berth_config_f64_or(builder, "rope_parameters.partial_rotary_factor", 1);
    const int64_t dim = part > 0 && part <= 1 ? (int64_t)((double)head_size * part) : 0;
    if (part == 1 && dim % 2 != 0) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: 'head_dim' is %lld, all of which is rotated: must be even",
                         (long long)head_size);
    } else if (dim < 2 || dim % 2 != 0) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: 'rope_parameters.partial_rotary_factor' is %g: of a head of "
                         "%lld elements an even number from 2 on must be rotated",
                         part, (long long)head_size);
    }
    return dim;
}

void berth_decoder_read_rope(berth_builder *builder, berth_decoder *decoder) {
    const char *type = berth_config_str_or(builder, "rope_parameters.rope_type", "default");
    check_type(builder, type);
    add(decoder, *BERTH_I64("rotary_dim", read_rotary_dim(builder, decoder->head_size)));
    add(decoder, *BERTH_I64("max_position", decoder->context_length));
    add(decoder, *BERTH_F64("base", read_theta(builder)));
    add(decoder, *BERTH_TEXT("rope_type", type));
    for (size_t i = 0; i < KEY_COUNT; ++i) {
        if (strcmp(keys[i].type, type) == 0) {
            add_key(builder, decoder, &keys[i]);
        }
    }
    check_bands(builder, decoder);
    stretch(builder, decoder, type);
}
