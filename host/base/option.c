// SPDX-License-Identifier: Apache-2.0
// Input: a row, a text and where it comes from. Output: the value in the target struct and its
// source. Every reader (option_read.c) ends here, so that a text means the same wherever it was
// written.
#include "base/option.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PLACE_BYTES 256

static void *slot_of(const berth_options *options, const berth_option *row) {
    return (char *)options->target + row->offset;
}

static berth_option_source *source_of(const berth_options *options, const berth_option *row) {
    return &options->sources[row - options->rows];
}

// Where a text was written, for failures.
static const char *place_of(const berth_option *row, berth_option_source source,
                            char place[PLACE_BYTES]) {
    const char *detail = source.detail == NULL ? "?" : source.detail;
    switch (source.origin) {
    case BERTH_ORIGIN_COMMAND_LINE:
        snprintf(place, PLACE_BYTES, "--%s", row->name);
        break;
    case BERTH_ORIGIN_ENVIRONMENT:
        snprintf(place, PLACE_BYTES, "%s", detail);
        break;
    case BERTH_ORIGIN_CONFIG:
        snprintf(place, PLACE_BYTES, "%s: %s", detail, row->key == NULL ? row->name : row->key);
        break;
    case BERTH_ORIGIN_PLATFORM:
        snprintf(place, PLACE_BYTES, "%s (set by %s)", row->name, detail);
        break;
    case BERTH_ORIGIN_DEFAULT:
        snprintf(place, PLACE_BYTES, "default of %s", row->name);
        break;
    }
    return place;
}

static berth_status wrong_value(const char *place, berth_str text, const char *needed) {
    const berth_str shown = berth_str_slice(text, 0, 64);
    return BERTH_FAIL(INVALID_ARGUMENT, "%s: is '" BERTH_STR_FMT "%s', needed is %s", place,
                      BERTH_STR_ARG(shown), shown.size < text.size ? "…" : "", needed);
}

static berth_status parse_flag(const char *place, berth_str text, bool *out_value) {
    const char *const names[] = {"false", "true", "no", "yes", "0", "1"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (berth_str_equal_cstr(text, names[i])) {
            *out_value = i % 2 == 1;
            return BERTH_OK;
        }
    }
    return wrong_value(place, text, "true or false");
}

// "a whole number from 1 to 8"
static void describe_number(const berth_option *row, char needed[PLACE_BYTES]) {
    const char *kind = row->type == BERTH_OPTION_I64 ? "a whole number" : "a number";
    if (row->minimum < row->maximum) {
        snprintf(needed, PLACE_BYTES, "%s from %.15g to %.15g", kind, row->minimum, row->maximum);
    } else {
        snprintf(needed, PLACE_BYTES, "%s", kind);
    }
}

static bool is_within(const berth_option *row, double value) {
    return row->minimum >= row->maximum || (value >= row->minimum && value <= row->maximum);
}

static berth_status parse_i64(const berth_option *row, const char *place, berth_str text,
                              int64_t *out_value) {
    int64_t value = 0;
    char needed[PLACE_BYTES];
    describe_number(row, needed);
    if (berth_str_parse_i64(text, &value) != BERTH_OK || !is_within(row, (double)value)) {
        return wrong_value(place, text, needed);
    }
    *out_value = value;
    return BERTH_OK;
}

static berth_status parse_f64(const berth_option *row, const char *place, berth_str text,
                              double *out_value) {
    double value = 0;
    char needed[PLACE_BYTES];
    describe_number(row, needed);
    if (berth_str_parse_f64(text, &value) != BERTH_OK || !is_within(row, value)) {
        return wrong_value(place, text, needed);
    }
    *out_value = value;
    return BERTH_OK;
}

// "one of a, b, c"
static void describe_choices(const char *const *choices, char needed[PLACE_BYTES]) {
    size_t used = (size_t)snprintf(needed, PLACE_BYTES, "one of");
    for (size_t i = 0; choices[i] != NULL && used < PLACE_BYTES; ++i) {
        used += (size_t)snprintf(needed + used, PLACE_BYTES - used, "%s %s", i == 0 ? "" : ",",
                                 choices[i]);
    }
}

static berth_status parse_choice(const berth_option *row, const char *place, berth_str text,
                                 int32_t *out_value) {
    for (int32_t i = 0; row->choices[i] != NULL; ++i) {
        if (berth_str_equal_cstr(text, row->choices[i])) {
            *out_value = i;
            return BERTH_OK;
        }
    }
    char needed[PLACE_BYTES];
    describe_choices(row->choices, needed);
    return wrong_value(place, text, needed);
}

static berth_status no_memory(const berth_options *options) {
    return berth_arena_exhausted(options->arena, "options");
}

static berth_status append(berth_options *options, berth_option_list *list, berth_str item) {
    const char **items = BERTH_ARENA_ARRAY(options->arena, const char *, list->count + 1);
    const char *copy = berth_arena_copy(options->arena, item);
    if (items == NULL || copy == NULL) {
        return no_memory(options);
    }
    if (list->count > 0) {
        memcpy(items, list->items, list->count * sizeof(*items));
    }
    items[list->count] = copy;
    list->items = items;
    ++list->count;
    return BERTH_OK;
}

// Splits the text at the row's separator; blank pieces are no items.
static berth_status append_text(berth_options *options, const berth_option *row, berth_str text,
                                berth_option_list *list) {
    if (row->separator == '\0') {
        return append(options, list, text);
    }
    berth_str rest = text;
    for (berth_str piece; berth_str_split_first(&rest, row->separator, &piece);) {
        piece = berth_str_trim(piece);
        if (piece.size > 0) {
            BERTH_TRY(append(options, list, piece));
        }
    }
    return BERTH_OK;
}

// The list that a source writes into: a new one, but occurrences on the command line add up.
static berth_status start_list(berth_options *options, const berth_option *row,
                               berth_option_origin origin, berth_option_list *out_list) {
    if (origin == BERTH_ORIGIN_COMMAND_LINE && source_of(options, row)->origin == origin) {
        *out_list = *(const berth_option_list *)slot_of(options, row);
        return BERTH_OK;
    }
    const char **none = BERTH_ARENA_ARRAY(options->arena, const char *, 0);
    *out_list = (berth_option_list){.items = none};
    return none == NULL ? no_memory(options) : BERTH_OK;
}

static berth_status remember_source(berth_options *options, const berth_option *row,
                                    berth_option_source source) {
    const char *detail = NULL;
    if (source.detail != NULL) {
        detail = berth_arena_strdup(options->arena, source.detail);
        if (detail == NULL) {
            return no_memory(options);
        }
    }
    *source_of(options, row) = (berth_option_source){.origin = source.origin, .detail = detail};
    return BERTH_OK;
}

static bool is_weaker(const berth_options *options, const berth_option *row,
                      berth_option_source source) {
    return source.origin < source_of(options, row)->origin;
}

// A value of any type on its way into the target.
typedef union value {
    bool flag;
    const char *str;
    int64_t i64;
    double f64;
    int32_t choice;
    berth_option_list list;
} value;

static berth_status parse_value(berth_options *options, const berth_option *row, berth_str text,
                                berth_option_source source, value *out) {
    char buffer[PLACE_BYTES];
    const char *place = place_of(row, source, buffer);
    switch (row->type) {
    case BERTH_OPTION_FLAG:
        return parse_flag(place, text, &out->flag);
    case BERTH_OPTION_STR:
        out->str = berth_arena_copy(options->arena, text);
        return out->str == NULL ? no_memory(options) : BERTH_OK;
    case BERTH_OPTION_I64:
        return parse_i64(row, place, text, &out->i64);
    case BERTH_OPTION_F64:
        return parse_f64(row, place, text, &out->f64);
    case BERTH_OPTION_ENUM:
        return parse_choice(row, place, text, &out->choice);
    case BERTH_OPTION_LIST:
        BERTH_TRY(start_list(options, row, source.origin, &out->list));
        return append_text(options, row, text, &out->list);
    }
    return BERTH_FAIL(INTERNAL, "option %s has no type", row->name);
}

static size_t value_bytes(berth_option_type type) {
    switch (type) {
    case BERTH_OPTION_FLAG:
        return sizeof(bool);
    case BERTH_OPTION_STR:
        return sizeof(const char *);
    case BERTH_OPTION_I64:
        return sizeof(int64_t);
    case BERTH_OPTION_F64:
        return sizeof(double);
    case BERTH_OPTION_ENUM:
        return sizeof(int32_t);
    case BERTH_OPTION_LIST:
        return sizeof(berth_option_list);
    }
    return 0;
}

// A value that is wrong is refused even where a stronger source makes it irrelevant.
static berth_status set_row(berth_options *options, const berth_option *row, berth_str text,
                            berth_option_source source) {
    value parsed;
    BERTH_TRY(parse_value(options, row, text, source, &parsed));
    if (is_weaker(options, row, source)) {
        return BERTH_OK;
    }
    BERTH_TRY(remember_source(options, row, source));
    memcpy(slot_of(options, row), &parsed, value_bytes(row->type));
    return BERTH_OK;
}

static const char *nearest_name(const berth_options *options, berth_str name) {
    const char *nearest = NULL;
    const char **names = BERTH_ARENA_ARRAY(options->arena, const char *, options->row_count);
    if (names != NULL) {
        for (size_t i = 0; i < options->row_count; ++i) {
            names[i] = options->rows[i].name;
        }
        nearest = berth_str_nearest(name, names, options->row_count);
    }
    return nearest;
}

static berth_status find_row(const berth_options *options, const char *name,
                             const berth_option **out_row) {
    for (size_t i = 0; i < options->row_count; ++i) {
        if (strcmp(options->rows[i].name, name) == 0) {
            *out_row = &options->rows[i];
            return BERTH_OK;
        }
    }
    const char *nearest = nearest_name(options, berth_str_from(name));
    return BERTH_FAIL(NOT_FOUND, "no option '%s'%s%s%s", name,
                      nearest == NULL ? "" : "; did you mean '", nearest == NULL ? "" : nearest,
                      nearest == NULL ? "" : "'?");
}

berth_status berth_options_init(berth_options *options, const berth_option *rows, size_t row_count,
                                void *target, berth_arena *arena) {
    *options = (berth_options){
        .rows = rows,
        .row_count = row_count,
        .target = target,
        .arena = arena,
        .sources = BERTH_ARENA_ARRAY(arena, berth_option_source, row_count),
    };
    if (options->sources == NULL) {
        return no_memory(options);
    }
    for (size_t i = 0; i < row_count; ++i) {
        const berth_option *row = &rows[i];
        assert(row->name != NULL && row->help != NULL);
        assert((row->type == BERTH_OPTION_ENUM) == (row->choices != NULL));
        assert((row->type == BERTH_OPTION_FLAG) == (row->value_name == NULL));
        memset(slot_of(options, row), 0, value_bytes(row->type));
        if (row->default_text != NULL) {
            BERTH_TRY(set_row(options, row, berth_str_from(row->default_text),
                              (berth_option_source){.origin = BERTH_ORIGIN_DEFAULT}));
        }
    }
    return BERTH_OK;
}

berth_status berth_options_set(berth_options *options, const char *name, const char *text,
                               berth_option_source source) {
    const berth_option *row = NULL;
    BERTH_TRY(find_row(options, name, &row));
    return set_row(options, row, berth_str_from(text), source);
}

berth_status berth_options_set_list(berth_options *options, const char *name,
                                    berth_option_list items, berth_option_source source) {
    const berth_option *row = NULL;
    BERTH_TRY(find_row(options, name, &row));
    assert(row->type == BERTH_OPTION_LIST);
    if (is_weaker(options, row, source)) {
        return BERTH_OK;
    }
    berth_option_list list = {0};
    BERTH_TRY(start_list(options, row, source.origin, &list));
    for (size_t i = 0; i < items.count; ++i) {
        BERTH_TRY(append(options, &list, berth_str_from(items.items[i])));
    }
    BERTH_TRY(remember_source(options, row, source));
    *(berth_option_list *)slot_of(options, row) = list;
    return BERTH_OK;
}

berth_status berth_options_source(const berth_options *options, const char *name,
                                  berth_option_source *out_source) {
    const berth_option *row = NULL;
    BERTH_TRY(find_row(options, name, &row));
    *out_source = *source_of(options, row);
    return BERTH_OK;
}

const char *berth_option_origin_name(berth_option_origin origin) {
    static const char *const names[] = {
        [BERTH_ORIGIN_DEFAULT] = "default",           [BERTH_ORIGIN_PLATFORM] = "platform",
        [BERTH_ORIGIN_CONFIG] = "config file",        [BERTH_ORIGIN_ENVIRONMENT] = "environment",
        [BERTH_ORIGIN_COMMAND_LINE] = "command line",
    };
    return names[origin];
}
