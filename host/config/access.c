// SPDX-License-Identifier: Apache-2.0
// What plugins see of the configuration: values by key path, and changes by a platform's config
// hooks. A change is a source like any other, weaker than what the user wrote: it is parsed and
// checked by the same row, logged, and recorded as the value's origin.
#include "config/config.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "config/rows.h"

#define MODULE     "config"
#define LIST_BYTES 65536 // of a list as one text

static const char *const type_names[] = {
    [BERTH_OPTION_FLAG] = "a bool (i64 0 or 1)",
    [BERTH_OPTION_STR] = "a string",
    [BERTH_OPTION_I64] = "an integer",
    [BERTH_OPTION_F64] = "a number",
    [BERTH_OPTION_ENUM] = "a string",
    [BERTH_OPTION_LIST] = "a list, read as a string with commas",
};

// What decides which plugins there are and what they may do is the user's alone. Why allow_fallback
// is among them: a platform that could allow it for itself would bring back the silent fallback.
static const char *const protected_keys[] = {
    "model",        "platform",
    "plugin_dirs",  "plugin_files",
    "plugins",      "allow_fallback",
    "fallback_ops", "log",
    "cache_dir",    BERTH_CONFIG_PASS_KEYS "disabled",
};

static berth_status find_row(const char *path, const berth_option **out_row) {
    const char *keys[BERTH_CONFIG_MAX_ROWS];
    for (size_t i = 0; i < berth_config_row_count; ++i) {
        keys[i] = berth_config_rows[i].key;
        if (path != NULL && keys[i] != NULL && strcmp(keys[i], path) == 0) {
            *out_row = &berth_config_rows[i];
            return BERTH_OK;
        }
    }
    const char *nearest = berth_str_nearest(berth_str_from(path), keys, berth_config_row_count);
    return BERTH_FAIL(NOT_FOUND, "the configuration has no key '%s'%s%s%s",
                      path == NULL ? "(null)" : path, nearest == NULL ? "" : "; did you mean '",
                      nearest == NULL ? "" : nearest, nearest == NULL ? "" : "'?");
}

static berth_status wrong_type(const berth_option *row) {
    return BERTH_FAIL(INVALID_ARGUMENT, "configuration key '%s' is %s", row->key,
                      type_names[row->type]);
}

static const void *value_of(const berth_config *config, const berth_option *row) {
    return (const char *)config + row->offset;
}

static berth_option_source *source_of(berth_config *config, const berth_option *row) {
    return &config->options.sources[row - berth_config_rows];
}

static berth_status join(berth_arena *arena, const berth_option_list *list, const char **out) {
    berth_text text;
    berth_text_init(&text, LIST_BYTES);
    for (size_t i = 0; i < list->count; ++i) {
        berth_text_add_cstr(&text, i == 0 ? "" : ",");
        berth_text_add_cstr(&text, list->items[i]);
    }
    berth_status status = berth_text_finish(&text, NULL);
    if (status == BERTH_OK) {
        *out = berth_arena_copy(arena, berth_text_str(&text));
        status = *out == NULL ? berth_arena_exhausted(arena, "a configuration list") : BERTH_OK;
    }
    berth_text_deinit(&text);
    return status;
}

int64_t berth_config_threads(const berth_config *config) {
    return config->threads > 0 ? config->threads : (int64_t)berth_thread_cpus();
}

berth_status berth_config_get_i64(const berth_config *config, const char *path, int64_t *out) {
    const berth_option *row = NULL;
    BERTH_TRY(find_row(path, &row));
    if (row->type == BERTH_OPTION_FLAG) {
        *out = *(const bool *)value_of(config, row);
        return BERTH_OK;
    }
    if (row->type == BERTH_OPTION_I64) {
        const int64_t *value = value_of(config, row);
        *out = value == &config->threads ? berth_config_threads(config) : *value;
        return BERTH_OK;
    }
    return wrong_type(row);
}

berth_status berth_config_get_f64(const berth_config *config, const char *path, double *out) {
    const berth_option *row = NULL;
    BERTH_TRY(find_row(path, &row));
    if (row->type != BERTH_OPTION_F64) {
        return wrong_type(row);
    }
    *out = *(const double *)value_of(config, row);
    return BERTH_OK;
}

berth_status berth_config_get_str(const berth_config *config, const char *path, const char **out) {
    const berth_option *row = NULL;
    BERTH_TRY(find_row(path, &row));
    const void *value = value_of(config, row);
    const char *text = NULL;
    if (row->type == BERTH_OPTION_STR) {
        text = *(const char *const *)value;
    } else if (row->type == BERTH_OPTION_ENUM) {
        text = row->choices[*(const int32_t *)value];
    } else if (row->type == BERTH_OPTION_LIST) {
        const berth_option_list *list = value;
        if (list->items != NULL) {
            return join(config->arena, list, out);
        }
    } else {
        return wrong_type(row);
    }
    if (text == NULL) {
        return BERTH_FAIL(NOT_FOUND, "configuration key '%s' has no value", path);
    }
    *out = text;
    return BERTH_OK;
}

static void print_value(const berth_config *config, const berth_option *row, char text[256]) {
    const void *value = value_of(config, row);
    switch (row->type) {
    case BERTH_OPTION_FLAG:
        (void)snprintf(text, 256, "%s", *(const bool *)value ? "true" : "false");
        break;
    case BERTH_OPTION_I64:
        (void)snprintf(text, 256, "%" PRId64, *(const int64_t *)value);
        break;
    case BERTH_OPTION_F64:
        (void)snprintf(text, 256, "%g", *(const double *)value);
        break;
    default: {
        const char *string = "nothing";
        if (berth_config_get_str(config, row->key, &string) != BERTH_OK) {
            berth_status_clear();
        }
        (void)snprintf(text, 256, "'%s'", string);
    }
    }
}

// The row that a config hook may write, or why it may not.
static berth_status writable_row(const berth_config *config, const char *path,
                                 const berth_option **out_row) {
    BERTH_TRY(find_row(path, out_row));
    if (config->changed_by == NULL) {
        return BERTH_FAIL(WRONG_STATE,
                          "configuration key '%s' can only be changed by a platform's config hooks",
                          path);
    }
    for (size_t i = 0; i < BERTH_COUNT(protected_keys); ++i) {
        if (strcmp(path, protected_keys[i]) == 0) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "configuration key '%s' is the user's alone, a plugin cannot set it",
                              path);
        }
    }
    return BERTH_OK;
}

static berth_status set_text(berth_config *config, const berth_option *row, const char *value) {
    const berth_option_source *source = source_of(config, row);
    const bool is_users = source->origin > BERTH_ORIGIN_PLATFORM;
    char before[256];
    char after[256];
    print_value(config, row, before);
    BERTH_TRY(berth_options_set(&config->options, row->name, value,
                                (berth_option_source){
                                    .origin = BERTH_ORIGIN_PLATFORM,
                                    .detail = config->changed_by,
                                }));
    print_value(config, row, after);
    if (is_users) {
        BERTH_WARN(MODULE, "%s stays %s as given by the %s, %s asked for %s", row->key, before,
                   berth_option_origin_name(source->origin), config->changed_by, value);
    } else if (strcmp(before, after) != 0) {
        BERTH_INFO(MODULE, "%s changed by %s from %s to %s", row->key, config->changed_by, before,
                   after);
    }
    return BERTH_OK;
}

berth_status berth_config_set_i64(berth_config *config, const char *path, int64_t value) {
    const berth_option *row = NULL;
    BERTH_TRY(writable_row(config, path, &row));
    char text[32];
    if (row->type == BERTH_OPTION_I64) {
        (void)snprintf(text, sizeof(text), "%" PRId64, value);
    } else if (row->type == BERTH_OPTION_FLAG && (value == 0 || value == 1)) {
        (void)snprintf(text, sizeof(text), "%s", value == 1 ? "true" : "false");
    } else {
        return wrong_type(row);
    }
    return set_text(config, row, text);
}

berth_status berth_config_set_f64(berth_config *config, const char *path, double value) {
    const berth_option *row = NULL;
    BERTH_TRY(writable_row(config, path, &row));
    if (row->type != BERTH_OPTION_F64) {
        return wrong_type(row);
    }
    char text[64];
    (void)snprintf(text, sizeof(text), "%.17g", value);
    return set_text(config, row, text);
}

// ---- custom_ops ---------------------------------------------------------------------------------

// Whether two item names mean one op under its two spellings, "rms_norm" and "RMSNorm". Why by
// spelling: the op tables are not known yet, and a name that differs in more than this is judged
// when they are.
static bool is_same_op(const char *a, const char *b) {
    while (*a != '\0' || *b != '\0') {
        if (*a == '_' || *b == '_') {
            a += *a == '_';
            b += *b == '_';
        } else if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) {
            return false;
        } else {
            ++a;
            ++b;
        }
    }
    return true;
}

static bool is_base(const char *item) {
    return strcmp(item, "all") == 0 || strcmp(item, "none") == 0;
}

static bool is_settled(const berth_option_list *users, const char *item) {
    for (size_t i = 0; i < users->count; ++i) {
        const char *theirs = users->items[i];
        if (is_base(item)
                ? is_base(theirs)
                : !is_base(theirs) && theirs[0] != '\0' && is_same_op(theirs + 1, item + 1)) {
            return true;
        }
    }
    return false;
}

static size_t count_pieces(const char *value) {
    size_t count = 1;
    for (; *value != '\0'; ++value) {
        count += *value == ',';
    }
    return count;
}

// The plugin's items that the user's list leaves open, then the user's.
static berth_status merge_ops(const berth_config *config, const char *value,
                              berth_option_list *out) {
    const berth_option_list *users = &config->user_ops;
    const size_t most = count_pieces(value) + users->count;
    out->items = BERTH_ARENA_ARRAY(config->arena, const char *, most);
    if (out->items == NULL) {
        return berth_arena_exhausted(config->arena, "custom_ops");
    }
    berth_str rest = berth_str_from(value);
    for (berth_str piece; value[0] != '\0' && berth_str_split_first(&rest, ',', &piece);) {
        const char *item = berth_arena_copy(config->arena, berth_str_trim(piece));
        if (item == NULL) {
            return berth_arena_exhausted(config->arena, "custom_ops");
        }
        if (!is_base(item) && ((item[0] != '+' && item[0] != '-') || item[1] == '\0')) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "custom_ops: '%s' of %s is none of all, none, +op and -op", item,
                              config->changed_by);
        }
        if (!is_settled(users, item)) {
            out->items[out->count++] = item;
        }
    }
    for (size_t i = 0; i < users->count; ++i) {
        out->items[out->count++] = users->items[i];
    }
    return BERTH_OK;
}

static berth_status set_ops(berth_config *config, const berth_option *row, const char *value) {
    berth_option_list merged = {0};
    BERTH_TRY(merge_ops(config, value, &merged));
    berth_option_source *source = source_of(config, row);
    const char *detail = config->changed_by;
    if (config->user_ops.items != NULL) {
        detail = berth_arena_printf(config->arena, "%s%smerged with %s",
                                    source->detail == NULL ? "" : source->detail,
                                    source->detail == NULL ? "" : ", ", config->changed_by);
    }
    if (detail == NULL) {
        return berth_arena_exhausted(config->arena, "custom_ops");
    }
    char before[256];
    char after[256];
    print_value(config, row, before);
    config->custom_ops = merged;
    source->detail = detail;
    if (source->origin < BERTH_ORIGIN_PLATFORM) {
        source->origin = BERTH_ORIGIN_PLATFORM;
    }
    print_value(config, row, after);
    BERTH_INFO(MODULE, "custom_ops changed by %s from %s to %s", config->changed_by, before, after);
    return BERTH_OK;
}

berth_status berth_config_set_str(berth_config *config, const char *path, const char *value) {
    const berth_option *row = NULL;
    BERTH_TRY(writable_row(config, path, &row));
    if (value == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT, "configuration key '%s' cannot be set to NULL", path);
    }
    if (row->type == BERTH_OPTION_LIST) {
        return set_ops(config, row, value); // the only list that is not protected
    }
    if (row->type != BERTH_OPTION_STR && row->type != BERTH_OPTION_ENUM) {
        return wrong_type(row);
    }
    if (row->offset == offsetof(berth_config, compilation_backend)) {
        BERTH_TRY(berth_config_check_backend(value));
    }
    return set_text(config, row, value);
}
