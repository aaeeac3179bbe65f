// SPDX-License-Identifier: Apache-2.0
// Input: a node of a YAML tree and a path. Output: a value of the wanted type, or a failure that
// says file, line, column, key path, what is needed and what was found. Scalars get their type
// here.
#include "base/yaml.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define PLACE_BYTES 256
#define WHERE_BYTES 2048
#define MAX_DEPTH   64 // of the steps that a place shows

// The text of a scalar for errors, or what else stands there.
static const char *describe(const berth_yaml *node, char text[64]) {
    switch (berth_yaml_kind_of(node)) {
    case BERTH_YAML_MAPPING:
        return "a mapping";
    case BERTH_YAML_SEQUENCE:
        return "a list";
    case BERTH_YAML_SCALAR:
        break;
    }
    const berth_str value = berth_yaml_scalar(node);
    const berth_str shown = berth_str_slice(value, 0, 32);
    snprintf(text, 64, "%s'" BERTH_STR_FMT "%s'", berth_yaml_is_quoted(node) ? "the text " : "",
             BERTH_STR_ARG(shown), shown.size < value.size ? "…" : "");
    return text;
}

// Appends one step of a path, as far as it fits.
static void add_step(char place[PLACE_BYTES], size_t *used, const berth_yaml *parent,
                     uint32_t index) {
    const char *dot = *used == 0 ? "" : ".";
    int added = 0;
    if (berth_yaml_kind_of(parent) == BERTH_YAML_MAPPING) {
        const berth_str key = berth_yaml_key_at(parent, index);
        added = snprintf(place + *used, PLACE_BYTES - *used, "%s" BERTH_STR_FMT, dot,
                         BERTH_STR_ARG(key));
    } else {
        added = snprintf(place + *used, PLACE_BYTES - *used, "%s%" PRIu32, dot, index);
    }
    const size_t end = *used + (added < 0 ? 0 : (size_t)added);
    *used = end < PLACE_BYTES ? end : PLACE_BYTES - 1;
}

// "entry_points.berth.general_plugins.0"; "" for the root.
static void find_place(const berth_yaml *node, char place[PLACE_BYTES]) {
    const berth_yaml *parents[MAX_DEPTH];
    uint32_t indices[MAX_DEPTH];
    size_t depth = 0;
    while (depth < MAX_DEPTH) {
        parents[depth] = berth_yaml_parent(node, &indices[depth]);
        if (parents[depth] == NULL) {
            break;
        }
        node = parents[depth++];
    }
    size_t used = 0;
    place[0] = '\0';
    while (depth-- > 0) {
        add_step(place, &used, parents[depth], indices[depth]);
    }
}

berth_status berth_yaml_fail(berth_status code, const berth_yaml *node, const char *format, ...) {
    char place[PLACE_BYTES];
    char where[WHERE_BYTES];
    find_place(node, place);
    snprintf(where, sizeof(where), "%s:%" PRIu32 ":%" PRIu32 "%s%s", berth_yaml_file(node),
             berth_yaml_line(node), berth_yaml_column(node), place[0] == '\0' ? "" : ": ", place);
    va_list arguments;
    va_start(arguments, format);
    const berth_status status = berth_status_fail_in(code, where, format, arguments);
    va_end(arguments);
    return status;
}

static berth_status wrong_kind(const berth_yaml *node, const char *needed) {
    char text[64];
    return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "is %s, needed is %s",
                           describe(node, text), needed);
}

// The value under the path when there is one that is not null.
static berth_status present(const berth_yaml *node, const char *path, const char *needed,
                            const berth_yaml **out_found) {
    const berth_yaml *found = berth_yaml_find(node, path);
    if (found == NULL) {
        return berth_yaml_fail(BERTH_NOT_FOUND, node, "'%s' is missing, needed is %s", path,
                               needed);
    }
    if (berth_yaml_is_null(found)) {
        return berth_yaml_fail(BERTH_NOT_FOUND, found, "has no value, needed is %s", needed);
    }
    *out_found = found;
    return BERTH_OK;
}

// A plain scalar: one whose text may be something else than a string.
static berth_status plain(const berth_yaml *node, const char *path, const char *needed,
                          const berth_yaml **out_found) {
    BERTH_TRY(present(node, path, needed, out_found));
    if (berth_yaml_kind_of(*out_found) != BERTH_YAML_SCALAR || berth_yaml_is_quoted(*out_found)) {
        return wrong_kind(*out_found, needed);
    }
    return BERTH_OK;
}

berth_status berth_yaml_get_str(const berth_yaml *node, const char *path, berth_str *out_value) {
    const berth_yaml *found = NULL;
    BERTH_TRY(present(node, path, "a text", &found));
    if (berth_yaml_kind_of(found) != BERTH_YAML_SCALAR) {
        return wrong_kind(found, "a text");
    }
    *out_value = berth_yaml_scalar(found);
    return BERTH_OK;
}

berth_status berth_yaml_get_i64(const berth_yaml *node, const char *path, int64_t *out_value) {
    const berth_yaml *found = NULL;
    BERTH_TRY(plain(node, path, "a whole number", &found));
    if (berth_str_parse_i64(berth_yaml_scalar(found), out_value) != BERTH_OK) {
        return wrong_kind(found, "a whole number");
    }
    return BERTH_OK;
}

berth_status berth_yaml_get_f64(const berth_yaml *node, const char *path, double *out_value) {
    const berth_yaml *found = NULL;
    BERTH_TRY(plain(node, path, "a number", &found));
    if (berth_str_parse_f64(berth_yaml_scalar(found), out_value) != BERTH_OK) {
        return wrong_kind(found, "a number");
    }
    return BERTH_OK;
}

berth_status berth_yaml_get_bool(const berth_yaml *node, const char *path, bool *out_value) {
    const berth_yaml *found = NULL;
    BERTH_TRY(plain(node, path, "true or false", &found));
    const berth_str text = berth_yaml_scalar(found);
    const bool is_true = berth_str_equal_cstr(text, "true") || berth_str_equal_cstr(text, "yes");
    if (!is_true && !berth_str_equal_cstr(text, "false") && !berth_str_equal_cstr(text, "no")) {
        return wrong_kind(found, "true or false");
    }
    *out_value = is_true;
    return BERTH_OK;
}

berth_status berth_yaml_get_list(const berth_yaml *node, const char *path, berth_arena *arena,
                                 berth_str **out_items, size_t *out_count) {
    const berth_yaml *found = NULL;
    BERTH_TRY(present(node, path, "a list", &found));
    if (berth_yaml_kind_of(found) != BERTH_YAML_SEQUENCE) {
        return wrong_kind(found, "a list");
    }
    const size_t count = berth_yaml_size(found);
    berth_str *items = BERTH_ARENA_ARRAY(arena, berth_str, count);
    if (items == NULL) {
        return berth_arena_exhausted(arena, "a list");
    }
    for (size_t i = 0; i < count; ++i) {
        BERTH_TRY(berth_yaml_get_str(berth_yaml_at(found, i), "", &items[i]));
    }
    *out_items = items;
    *out_count = count;
    return BERTH_OK;
}

static bool is_among(berth_str key, const char *const *keys, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (berth_str_equal_cstr(key, keys[i])) {
            return true;
        }
    }
    return false;
}

berth_status berth_yaml_check_keys(const berth_yaml *mapping, const char *const *keys,
                                   size_t count) {
    if (berth_yaml_kind_of(mapping) != BERTH_YAML_MAPPING) {
        return wrong_kind(mapping, "a mapping");
    }
    for (size_t i = 0; i < berth_yaml_size(mapping); ++i) {
        const berth_str key = berth_yaml_key_at(mapping, i);
        if (berth_str_starts_with(key, BERTH_STR("x-")) || is_among(key, keys, count)) {
            continue;
        }
        const char *nearest = berth_str_nearest(key, keys, count);
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, berth_yaml_at(mapping, i),
                               "unknown key%s%s%s", nearest == NULL ? "" : "; did you mean '",
                               nearest == NULL ? "" : nearest, nearest == NULL ? "" : "'?");
    }
    return BERTH_OK;
}
