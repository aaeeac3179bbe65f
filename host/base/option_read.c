// SPDX-License-Identifier: Apache-2.0
// Input: argv, environment variables, a YAML tree. Output: calls of berth_options_set with the text
// and its source. Which text belongs to which row is decided here; what it means, in option.c.
#include "base/option.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES    256
#define DETAIL_BYTES 512

// argv on its way.
typedef struct reader {
    berth_options *options;
    uint64_t command;
    char *const *argv;
    int argc;
    int next;
} reader;

static const berth_option_source from_command_line = {.origin = BERTH_ORIGIN_COMMAND_LINE};

static const berth_option *find_long(const berth_options *options, berth_str name) {
    for (size_t i = 0; i < options->row_count; ++i) {
        if (berth_str_equal_cstr(name, options->rows[i].name)) {
            return &options->rows[i];
        }
    }
    return NULL;
}

static const berth_option *find_short(const berth_options *options, char letter) {
    for (size_t i = 0; i < options->row_count; ++i) {
        if (options->rows[i].short_name == letter) {
            return &options->rows[i];
        }
    }
    return NULL;
}

static berth_status unknown_option(const reader *in, berth_str name) {
    const berth_options *options = in->options;
    const char **names = BERTH_ARENA_ARRAY(options->arena, const char *, options->row_count);
    if (names == NULL) {
        return berth_arena_exhausted(options->arena, "options");
    }
    for (size_t i = 0; i < options->row_count; ++i) {
        const bool is_taken = (options->rows[i].commands & in->command) != 0;
        names[i] = is_taken ? options->rows[i].name : NULL;
    }
    const char *nearest = berth_str_nearest(name, names, options->row_count);
    if (nearest == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT, "unknown option --" BERTH_STR_FMT "; see --help",
                          BERTH_STR_ARG(name));
    }
    return BERTH_FAIL(INVALID_ARGUMENT, "unknown option --" BERTH_STR_FMT "; did you mean --%s?",
                      BERTH_STR_ARG(name), nearest);
}

static berth_status check_command(const reader *in, const berth_option *row) {
    if ((row->commands & in->command) != 0) {
        return BERTH_OK;
    }
    return BERTH_FAIL(INVALID_ARGUMENT, "option --%s does not belong to this command; see --help",
                      row->name);
}

// Takes the next argument as the row's value.
static berth_status take_value(reader *in, const berth_option *row) {
    const char *value = in->next < in->argc ? in->argv[in->next] : NULL;
    if (value == NULL || strncmp(value, "--", 2) == 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "option --%s needs a value; write --%s=%s", row->name,
                          row->name, row->value_name);
    }
    ++in->next;
    return berth_options_set(in->options, row->name, value, from_command_line);
}

static berth_status read_negated(reader *in, berth_str name) {
    const berth_str positive = berth_str_slice(name, 3, name.size);
    const berth_option *row =
        berth_str_starts_with(name, BERTH_STR("no-")) ? find_long(in->options, positive) : NULL;
    if (row == NULL || row->type != BERTH_OPTION_FLAG) {
        return unknown_option(in, name);
    }
    BERTH_TRY(check_command(in, row));
    return berth_options_set(in->options, row->name, "false", from_command_line);
}

// `text` is what follows the two dashes.
static berth_status read_long(reader *in, berth_str text) {
    const size_t end = berth_str_find(text, '=');
    const berth_str name = berth_str_slice(text, 0, end);
    const berth_option *row = find_long(in->options, name);
    if (row == NULL) {
        return end == text.size ? read_negated(in, name) : unknown_option(in, name);
    }
    BERTH_TRY(check_command(in, row));
    if (end < text.size) {
        return berth_options_set(in->options, row->name, text.data + end + 1, from_command_line);
    }
    if (row->type == BERTH_OPTION_FLAG) {
        return berth_options_set(in->options, row->name, "true", from_command_line);
    }
    return take_value(in, row);
}

// `text` is what follows the one dash: a letter, and perhaps its value.
static berth_status read_short(reader *in, const char *text) {
    const berth_option *row = find_short(in->options, text[0]);
    if (row == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT, "unknown option -%s; see --help", text);
    }
    BERTH_TRY(check_command(in, row));
    if (row->type == BERTH_OPTION_FLAG) {
        if (text[1] != '\0') {
            return BERTH_FAIL(INVALID_ARGUMENT, "unknown option -%s; write -%c by itself", text,
                              text[0]);
        }
        return berth_options_set(in->options, row->name, "true", from_command_line);
    }
    if (text[1] == '\0') {
        return take_value(in, row);
    }
    return berth_options_set(in->options, row->name, text + 1, from_command_line);
}

static void add_positional(berth_options *options, const char *argument) {
    options->positional[options->positional_count++] = argument;
}

berth_status berth_options_apply_argv(berth_options *options, uint64_t command, int argc,
                                      char *const *argv) {
    reader in = {.options = options, .command = command, .argv = argv, .argc = argc};
    options->positional_count = 0;
    options->positional = BERTH_ARENA_ARRAY(options->arena, const char *, (size_t)argc);
    if (options->positional == NULL) {
        return berth_arena_exhausted(options->arena, "arguments");
    }
    while (in.next < argc) {
        const char *argument = argv[in.next++];
        if (argument[0] != '-' || argument[1] == '\0') {
            add_positional(options, argument);
        } else if (argument[1] != '-') {
            BERTH_TRY(read_short(&in, argument + 1));
        } else if (argument[2] != '\0') {
            BERTH_TRY(read_long(&in, berth_str_from(argument + 2)));
        } else {
            break;
        }
    }
    while (in.next < argc) { // after "--"
        add_positional(options, argv[in.next++]);
    }
    return BERTH_OK;
}

berth_status berth_options_apply_env(berth_options *options) {
    for (size_t i = 0; i < options->row_count; ++i) {
        const berth_option *row = &options->rows[i];
        const char *text = row->env == NULL ? NULL : getenv(row->env);
        // An empty variable is an empty list; else it is as good as none, unless the row says that
        // empty is a value.
        const bool takes_empty = row->type == BERTH_OPTION_LIST || row->takes_empty;
        if (text == NULL || (text[0] == '\0' && !takes_empty)) {
            continue;
        }
        const berth_option_source source = {
            .origin = BERTH_ORIGIN_ENVIRONMENT,
            .detail = row->env,
        };
        if (text[0] == '\0' && row->type == BERTH_OPTION_LIST) {
            BERTH_TRY(berth_options_set_list(options, row->name, (berth_option_list){0}, source));
        } else {
            BERTH_TRY(berth_options_set(options, row->name, text, source));
        }
    }
    return BERTH_OK;
}

static const berth_option *find_key(const berth_options *options, const char *key) {
    for (size_t i = 0; i < options->row_count; ++i) {
        const char *row_key = options->rows[i].key;
        if (row_key != NULL && strcmp(row_key, key) == 0) {
            return &options->rows[i];
        }
    }
    return NULL;
}

// Whether some row's key lies below: "compilation" of "compilation.mode".
static bool is_group(const berth_options *options, const char *key) {
    const size_t size = strlen(key);
    for (size_t i = 0; i < options->row_count; ++i) {
        const char *row_key = options->rows[i].key;
        if (row_key != NULL && strncmp(row_key, key, size) == 0 && row_key[size] == '.') {
            return true;
        }
    }
    return false;
}

static berth_status unknown_key(const berth_options *options, const berth_yaml *node,
                                const char *key) {
    const char **keys = BERTH_ARENA_ARRAY(options->arena, const char *, options->row_count);
    if (keys == NULL) {
        return berth_arena_exhausted(options->arena, "options");
    }
    for (size_t i = 0; i < options->row_count; ++i) {
        keys[i] = options->rows[i].key;
    }
    const char *nearest = berth_str_nearest(berth_str_from(key), keys, options->row_count);
    return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "unknown key%s%s%s",
                           nearest == NULL ? "" : "; did you mean '",
                           nearest == NULL ? "" : nearest, nearest == NULL ? "" : "'?");
}

static berth_status apply_sequence(berth_options *options, const berth_option *row,
                                   const berth_yaml *node, berth_option_source source) {
    if (row->type != BERTH_OPTION_LIST) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "is a list, needed is one value");
    }
    berth_str *items = NULL;
    size_t count = 0;
    BERTH_TRY(berth_yaml_get_list(node, "", options->arena, &items, &count));
    const char **texts = BERTH_ARENA_ARRAY(options->arena, const char *, count);
    if (texts == NULL) {
        return berth_arena_exhausted(options->arena, "options");
    }
    for (size_t i = 0; i < count; ++i) {
        texts[i] = items[i].data;
    }
    return berth_options_set_list(options, row->name,
                                  (berth_option_list){.items = texts, .count = count}, source);
}

static berth_status apply_value(berth_options *options, const berth_option *row,
                                const berth_yaml *node) {
    if (berth_yaml_is_null(node)) {
        return BERTH_OK;
    }
    char detail[DETAIL_BYTES];
    snprintf(detail, sizeof(detail), "%s:%" PRIu32 ":%" PRIu32, berth_yaml_file(node),
             berth_yaml_line(node), berth_yaml_column(node));
    const berth_option_source source = {.origin = BERTH_ORIGIN_CONFIG, .detail = detail};
    const bool takes_text = row->type == BERTH_OPTION_STR || row->type == BERTH_OPTION_LIST ||
                            row->type == BERTH_OPTION_ENUM;
    switch (berth_yaml_kind_of(node)) {
    case BERTH_YAML_SEQUENCE:
        return apply_sequence(options, row, node, source);
    case BERTH_YAML_MAPPING:
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "is a mapping, needed is one value");
    case BERTH_YAML_SCALAR:
        break;
    }
    if (berth_yaml_is_quoted(node) && !takes_text) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node,
                               "is a text; write the value without quotes");
    }
    return berth_options_set(options, row->name, berth_yaml_scalar(node).data, source);
}

// Applies the members of a mapping whose own key is `prefix`, "" for the root. Recurses as deep as
// the rows' keys have dots.
static berth_status apply_mapping(berth_options *options, const berth_yaml *mapping,
                                  const char *prefix) {
    for (size_t i = 0; i < berth_yaml_size(mapping); ++i) {
        const berth_yaml *node = berth_yaml_at(mapping, i);
        const berth_str key = berth_yaml_key_at(mapping, i);
        char path[KEY_BYTES];
        snprintf(path, sizeof(path), "%s%s" BERTH_STR_FMT, prefix, prefix[0] == '\0' ? "" : ".",
                 BERTH_STR_ARG(key));
        const berth_option *row = find_key(options, path);
        if (row != NULL) {
            BERTH_TRY(apply_value(options, row, node));
        } else if (!is_group(options, path)) {
            return unknown_key(options, node, path);
        } else if (berth_yaml_kind_of(node) == BERTH_YAML_MAPPING) {
            BERTH_TRY(apply_mapping(options, node, path));
        } else if (!berth_yaml_is_null(node)) {
            return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "needed is a mapping");
        }
    }
    return BERTH_OK;
}

berth_status berth_options_apply_yaml(berth_options *options, const berth_yaml *root) {
    if (berth_yaml_kind_of(root) != BERTH_YAML_MAPPING) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, root,
                               "needed is a mapping of keys to values");
    }
    return apply_mapping(options, root, "");
}
