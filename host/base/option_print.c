// SPDX-License-Identifier: Apache-2.0
// Input: the table and the target. Output: --help for one command, or the effective configuration
// as YAML that option_read.c reads back to the same values.
#include "base/option.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LEFT_BYTES 64 // of the widest "-n, --name VALUE" column

// "-n, --max-tokens N"
static size_t print_left(const berth_option *row, char left[LEFT_BYTES]) {
    char letter[8] = "    ";
    if (row->short_name != '\0') {
        snprintf(letter, sizeof(letter), "-%c, ", row->short_name);
    }
    snprintf(left, LEFT_BYTES, "%s--%s%s%s", letter, row->name, row->value_name == NULL ? "" : " ",
             row->value_name == NULL ? "" : row->value_name);
    return strlen(left);
}

// " (a, b or c; default a)", or nothing.
static void print_limits(const berth_option *row, berth_text *text) {
    const char *open = " (";
    for (size_t i = 0; row->choices != NULL && row->choices[i] != NULL; ++i) {
        const bool is_last = row->choices[i + 1] == NULL;
        berth_text_add_format(text, "%s%s",
                              i == 0    ? " ("
                              : is_last ? " or "
                                        : ", ",
                              row->choices[i]);
        open = "; ";
    }
    if (row->minimum < row->maximum) {
        berth_text_add_format(text, "%s%.15g to %.15g", open, row->minimum, row->maximum);
        open = "; ";
    }
    if (row->default_text != NULL) {
        berth_text_add_format(text, "%sdefault %s", open, row->default_text);
        open = "; ";
    }
    if (row->env != NULL) {
        berth_text_add_format(text, "%s%s", open, row->env);
        open = "; ";
    }
    if (open[0] == ';') {
        berth_text_add_char(text, ')');
    }
}

void berth_options_print_help(const berth_options *options, uint64_t command, berth_text *text) {
    char left[LEFT_BYTES];
    size_t width = 0;
    for (size_t i = 0; i < options->row_count; ++i) {
        const berth_option *row = &options->rows[i];
        const size_t size = (row->commands & command) == 0 ? 0 : print_left(row, left);
        width = size > width ? size : width;
    }
    for (size_t i = 0; i < options->row_count; ++i) {
        const berth_option *row = &options->rows[i];
        if ((row->commands & command) != 0) {
            print_left(row, left);
            berth_text_add_format(text, "  %-*s  %s", (int)width, left, row->help);
            print_limits(row, text);
            berth_text_add_char(text, '\n');
        }
    }
}

static bool is_reserved(const char *word) {
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on", "off"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        if (strcmp(word, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

// A text that YAML reads as itself, plain where that is safe, else quoted.
static void print_scalar(const char *value, berth_text *text) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";
    static const char inside[] = "-+";
    bool is_safe = value[0] != '\0' && strchr(safe, value[0]) != NULL;
    for (const char *at = value; is_safe && *at != '\0'; ++at) {
        is_safe = strchr(safe, *at) != NULL || strchr(inside, *at) != NULL;
    }
    if (is_safe && !is_reserved(value)) {
        berth_text_add_cstr(text, value);
        return;
    }
    berth_text_add_char(text, '"');
    berth_text_add_json(text, berth_str_from(value));
    berth_text_add_char(text, '"');
}

static void print_list(const berth_option_list *list, berth_text *text) {
    if (list->items == NULL) {
        berth_text_add_cstr(text, "null");
        return;
    }
    berth_text_add_char(text, '[');
    for (size_t i = 0; i < list->count; ++i) {
        berth_text_add_cstr(text, i == 0 ? "" : ", ");
        print_scalar(list->items[i], text);
    }
    berth_text_add_char(text, ']');
}

static void print_value(const berth_option *row, const void *value, berth_text *text) {
    switch (row->type) {
    case BERTH_OPTION_FLAG:
        berth_text_add_cstr(text, *(const bool *)value ? "true" : "false");
        break;
    case BERTH_OPTION_STR:
        if (*(const char *const *)value == NULL) {
            berth_text_add_cstr(text, "null");
        } else {
            print_scalar(*(const char *const *)value, text);
        }
        break;
    case BERTH_OPTION_I64:
        berth_text_add_format(text, "%" PRId64, *(const int64_t *)value);
        break;
    case BERTH_OPTION_F64:
        berth_text_add_f64(text, *(const double *)value);
        break;
    case BERTH_OPTION_ENUM:
        print_scalar(row->choices[*(const int32_t *)value], text);
        break;
    case BERTH_OPTION_LIST:
        print_list(value, text);
        break;
    }
}

static void print_indent(size_t level, berth_text *text) {
    for (size_t i = 0; i < level; ++i) {
        berth_text_add_cstr(text, "  ");
    }
}

static void print_row(const berth_options *options, const berth_option *row, const char *key,
                      berth_text *text) {
    const berth_option_source *source = &options->sources[row - options->rows];
    berth_text_add_format(text, "%s: ", key);
    print_value(row, (const char *)options->target + row->offset, text);
    berth_text_add_format(text, "  # %s", berth_option_origin_name(source->origin));
    if (source->detail != NULL) {
        berth_text_add_format(text, " %s", source->detail);
    }
    berth_text_add_char(text, '\n');
}

static bool has_prefix(const berth_option *row, berth_str prefix) {
    return row->key != NULL && berth_str_starts_with(berth_str_from(row->key), prefix);
}

// Whether a row before this one has the prefix: then its group has been printed.
static bool is_printed(const berth_options *options, size_t row_index, berth_str prefix) {
    for (size_t i = 0; i < row_index; ++i) {
        if (has_prefix(&options->rows[i], prefix)) {
            return true;
        }
    }
    return false;
}

// Prints the rows whose keys start with `prefix` ("" or "compilation."), a mapping for each group.
// Recurses as deep as the keys have dots.
static void print_level(const berth_options *options, berth_str prefix, size_t level,
                        berth_text *text) {
    for (size_t i = 0; i < options->row_count; ++i) {
        const berth_option *row = &options->rows[i];
        if (!has_prefix(row, prefix)) {
            continue;
        }
        const berth_str key = berth_str_from(row->key);
        const berth_str rest = berth_str_slice(key, prefix.size, key.size);
        const size_t dot = berth_str_find(rest, '.');
        const berth_str group = berth_str_slice(key, 0, prefix.size + dot + 1);
        if (dot == rest.size) {
            print_indent(level, text);
            print_row(options, row, rest.data, text);
        } else if (!is_printed(options, i, group)) {
            print_indent(level, text);
            berth_text_add(text, berth_str_slice(rest, 0, dot));
            berth_text_add_cstr(text, ":\n");
            print_level(options, group, level + 1, text);
        }
    }
}

void berth_options_print_yaml(const berth_options *options, berth_text *text) {
    print_level(options, BERTH_STR(""), 0, text);
}
