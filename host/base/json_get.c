// SPDX-License-Identifier: Apache-2.0
// Input: a node of a JSON tree and a path. Output: a value of the wanted type, or a failure that
// says where in which file, what is needed and what was found.
#include "base/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define PLACE_BYTES 256
#define VALUE_BYTES 64
#define WHERE_BYTES 2048

// "a.b" and "c" give "a.b.c"; the root and "c" give "c".
static const char *place_below(const berth_json *node, const char *path, char place[PLACE_BYTES]) {
    char above[PLACE_BYTES / 2];
    berth_json_place(node, above, sizeof(above));
    const char *dot = above[0] != '\0' && path[0] != '\0' ? "." : "";
    // A place that is cut is still a place.
    snprintf(place, PLACE_BYTES, "%s%s%s", above, dot, path);
    return place;
}

berth_status berth_json_fail(berth_status code, const berth_json *node, const char *format, ...) {
    char place[PLACE_BYTES];
    char where[WHERE_BYTES];
    berth_json_place(node, place, sizeof(place));
    snprintf(where, sizeof(where), "%s%s%s", berth_json_file(node), place[0] == '\0' ? "" : ": ",
             place);
    va_list arguments;
    va_start(arguments, format);
    const berth_status status = berth_status_fail_in(code, where, format, arguments);
    va_end(arguments);
    return status;
}

static berth_status missing(const berth_json *node, const char *path, const char *needed) {
    char place[PLACE_BYTES];
    return BERTH_FAIL(NOT_FOUND, "%s: %s: missing, %s is needed", berth_json_file(node),
                      place_below(node, path, place), needed);
}

// What stands there, as far as it fits into one line.
static const char *describe(const berth_json *node, char text[VALUE_BYTES]) {
    int64_t integer = 0;
    double real = 0;
    berth_str string = {0};
    if (berth_json_as_i64(node, &integer)) {
        snprintf(text, VALUE_BYTES, "%" PRId64, integer);
    } else if (berth_json_as_f64(node, &real)) {
        snprintf(text, VALUE_BYTES, "%.17g", real);
    } else if (berth_json_as_str(node, &string)) {
        const berth_str shown = berth_str_slice(string, 0, 32);
        snprintf(text, VALUE_BYTES, "the string \"" BERTH_STR_FMT "%s\"", BERTH_STR_ARG(shown),
                 shown.size < string.size ? "…" : "");
    } else {
        snprintf(text, VALUE_BYTES, "%s", berth_json_kind_name(berth_json_kind_of(node)));
    }
    return text;
}

static berth_status wrong_kind(const berth_json *node, const char *needed) {
    char value[VALUE_BYTES];
    return berth_json_fail(BERTH_INVALID_ARGUMENT, node, "is %s, needed is %s",
                           describe(node, value), needed);
}

// The value under the path when there is one that is not null.
static berth_status present(const berth_json *node, const char *path, const char *needed,
                            const berth_json **out_found) {
    const berth_json *found = berth_json_find(node, path);
    if (found == NULL || berth_json_kind_of(found) == BERTH_JSON_NULL) {
        return missing(node, path, needed);
    }
    *out_found = found;
    return BERTH_OK;
}

berth_status berth_json_get_i64(const berth_json *node, const char *path, int64_t *out_value) {
    const berth_json *found = NULL;
    BERTH_TRY(present(node, path, "an integer", &found));
    return berth_json_as_i64(found, out_value) ? BERTH_OK : wrong_kind(found, "an integer");
}

berth_status berth_json_get_f64(const berth_json *node, const char *path, double *out_value) {
    const berth_json *found = NULL;
    BERTH_TRY(present(node, path, "a number", &found));
    return berth_json_as_f64(found, out_value) ? BERTH_OK : wrong_kind(found, "a number");
}

berth_status berth_json_get_bool(const berth_json *node, const char *path, bool *out_value) {
    const berth_json *found = NULL;
    BERTH_TRY(present(node, path, "true or false", &found));
    return berth_json_as_bool(found, out_value) ? BERTH_OK : wrong_kind(found, "true or false");
}

berth_status berth_json_get_str(const berth_json *node, const char *path, berth_str *out_value) {
    const berth_json *found = NULL;
    BERTH_TRY(present(node, path, "a string", &found));
    return berth_json_as_str(found, out_value) ? BERTH_OK : wrong_kind(found, "a string");
}

static berth_status get_kind(const berth_json *node, const char *path, berth_json_kind kind,
                             const berth_json **out_found) {
    const berth_json *found = NULL;
    BERTH_TRY(present(node, path, berth_json_kind_name(kind), &found));
    if (berth_json_kind_of(found) != kind) {
        return wrong_kind(found, berth_json_kind_name(kind));
    }
    *out_found = found;
    return BERTH_OK;
}

berth_status berth_json_get_array(const berth_json *node, const char *path,
                                  const berth_json **out_array) {
    return get_kind(node, path, BERTH_JSON_ARRAY, out_array);
}

berth_status berth_json_get_object(const berth_json *node, const char *path,
                                   const berth_json **out_object) {
    return get_kind(node, path, BERTH_JSON_OBJECT, out_object);
}

berth_status berth_json_i64_or(const berth_json *node, const char *path, int64_t fallback,
                               int64_t *out_value) {
    if (berth_json_has(node, path)) {
        return berth_json_get_i64(node, path, out_value);
    }
    *out_value = fallback;
    return BERTH_OK;
}

berth_status berth_json_f64_or(const berth_json *node, const char *path, double fallback,
                               double *out_value) {
    if (berth_json_has(node, path)) {
        return berth_json_get_f64(node, path, out_value);
    }
    *out_value = fallback;
    return BERTH_OK;
}

berth_status berth_json_bool_or(const berth_json *node, const char *path, bool fallback,
                                bool *out_value) {
    if (berth_json_has(node, path)) {
        return berth_json_get_bool(node, path, out_value);
    }
    *out_value = fallback;
    return BERTH_OK;
}

berth_status berth_json_str_or(const berth_json *node, const char *path, berth_str fallback,
                               berth_str *out_value) {
    if (berth_json_has(node, path)) {
        return berth_json_get_str(node, path, out_value);
    }
    *out_value = fallback;
    return BERTH_OK;
}
