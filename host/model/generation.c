// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says about generating text: generation_config.json.
//
// Its parameters become defaults of the configuration, so that whatever the user gave is stronger.
// Without do_sample the temperature alone says whether there is a choice, as in vLLM; where it is
// written it counts, as in transformers: false is greedy, true without a temperature means 1.
#include <stdio.h>

#include "base/file.h"
#include "model/model.h"

static const char *const generation_file = "generation_config.json";
static const char *const config_file = "config.json";

// ---- ids that end a text ------------------------------------------------------------------------

static berth_status add_stop_id(const berth_json *id, berth_generation *out) {
    int64_t value = 0;
    BERTH_TRY(berth_json_get_i64(id, "", &value));
    if (value < 0 || value > INT32_MAX) {
        return berth_json_fail(BERTH_CORRUPT, id, "%lld is no id of a token", (long long)value);
    }
    if (out->stop_count == BERTH_GENERATION_STOPS) {
        return berth_json_fail(BERTH_UNSUPPORTED, id, "more than %d stop ids",
                               BERTH_GENERATION_STOPS);
    }
    out->stop_ids[out->stop_count++] = (int32_t)value;
    return BERTH_OK;
}

// A number, or a list of them, or nothing.
static berth_status add_stop_ids(const berth_json *root, berth_generation *out) {
    const berth_json *ids = berth_json_find(root, "eos_token_id");
    if (!ids || berth_json_kind_of(ids) == BERTH_JSON_NULL) {
        return BERTH_OK;
    }
    if (berth_json_kind_of(ids) != BERTH_JSON_ARRAY) {
        return add_stop_id(ids, out);
    }
    for (size_t i = 0; i < berth_json_size(ids); ++i) {
        BERTH_TRY(add_stop_id(berth_json_at(ids, i), out));
    }
    return BERTH_OK;
}

// ---- sampling -----------------------------------------------------------------------------------

static berth_status set_number(const berth_json *root, const char *key, double value,
                               const char *option, berth_config *config) {
    char text[32];
    (void)snprintf(text, sizeof text, "%.17g", value);
    const berth_option_source source = {
        .origin = BERTH_ORIGIN_DEFAULT,
        .detail = berth_json_file(root),
    };
    BERTH_TRY_NOTE(berth_options_set(&config->options, option, text, source), "reading %s of %s",
                   key, berth_json_file(root));
    return BERTH_OK;
}

static berth_status set_default(const berth_json *root, const char *key, const char *option,
                                berth_config *config) {
    double value = 0;
    if (!berth_json_has(root, key)) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_json_get_f64(root, key, &value));
    return set_number(root, key, value, option, config);
}

static berth_status set_temperature(const berth_json *root, berth_config *config) {
    bool is_sampled = false;
    if (!berth_json_has(root, "do_sample")) {
        return set_default(root, "temperature", "temperature", config);
    }
    BERTH_TRY(berth_json_get_bool(root, "do_sample", &is_sampled));
    if (is_sampled && !berth_json_has(root, "temperature")) {
        return set_number(root, "do_sample", 1, "temperature", config);
    }
    return is_sampled ? set_default(root, "temperature", "temperature", config) : BERTH_OK;
}

static berth_status set_defaults(const berth_json *root, berth_config *config) {
    static const struct {
        const char *key;
        const char *option;
    } rows[] = {
        {.key = "max_new_tokens",     .option = "max-tokens"        },
        {.key = "top_p",              .option = "top-p"             },
        {.key = "min_p",              .option = "min-p"             },
        {.key = "repetition_penalty", .option = "repetition-penalty"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        BERTH_TRY(set_default(root, rows[i].key, rows[i].option, config));
    }
    BERTH_TRY(set_temperature(root, config));
    int64_t top_k = 0;
    BERTH_TRY(berth_json_i64_or(root, "top_k", 0, &top_k));
    return top_k > 0 ? set_default(root, "top_k", "top-k", config) : BERTH_OK; // -1 is off too
}

// ---- files --------------------------------------------------------------------------------------

// A missing file says nothing.
static berth_status open_file(const char *directory, const char *name, berth_arena *arena,
                              berth_json **out_root) {
    const char *path = berth_path_join(arena, directory, name);
    *out_root = NULL;
    if (!path) {
        return berth_arena_exhausted(arena, "paths");
    }
    return berth_path_exists(path) ? berth_json_load(path, NULL, out_root) : BERTH_OK;
}

berth_status berth_generation_load(const char *directory, berth_config *config,
                                   berth_generation *out) {
    berth_json *root = NULL;
    *out = (berth_generation){0};
    BERTH_TRY(open_file(directory, generation_file, config->arena, &root));
    berth_status status = root ? set_defaults(root, config) : BERTH_OK;
    if (root && status == BERTH_OK) {
        status = add_stop_ids(root, out);
    }
    berth_json_destroy(root);
    if (status != BERTH_OK || out->stop_count > 0) {
        return status;
    }
    BERTH_TRY(open_file(directory, config_file, config->arena, &root));
    status = root ? add_stop_ids(root, out) : BERTH_OK;
    const berth_json *text = root ? berth_json_find(root, "text_config") : NULL;
    if (text && status == BERTH_OK && out->stop_count == 0) {
        status = add_stop_ids(text, out); // of a model that also sees or hears
    }
    berth_json_destroy(root);
    return status;
}
