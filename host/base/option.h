// SPDX-License-Identifier: Apache-2.0
// Options: one table of rows beside one struct gives the command line, the environment, the YAML
// config, --help and the printed effective configuration. This module knows no option of its own.
//
// A value that comes from a stronger source is never replaced by one from a weaker source, so the
// sources may be applied in any order: command line, environment, config file, platform, default.
#ifndef BERTH_BASE_OPTION_H
#define BERTH_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"
#include "base/text.h"
#include "base/yaml.h"

typedef enum berth_option_type {
    BERTH_OPTION_FLAG, // bool: --name, --no-name, --name=yes
    BERTH_OPTION_STR,  // const char *
    BERTH_OPTION_I64,  // int64_t
    BERTH_OPTION_F64,  // double
    BERTH_OPTION_ENUM, // int32_t, an index into choices
    BERTH_OPTION_LIST, // berth_option_list
} berth_option_type;

// Weak to strong.
typedef enum berth_option_origin {
    BERTH_ORIGIN_DEFAULT,
    BERTH_ORIGIN_PLATFORM,
    BERTH_ORIGIN_CONFIG,
    BERTH_ORIGIN_ENVIRONMENT,
    BERTH_ORIGIN_COMMAND_LINE,
} berth_option_origin;

// `items` is NULL when no source gave the list, and not NULL for an empty list that was given.
typedef struct berth_option_list {
    const char **items; // owned by the arena
    size_t count;
} berth_option_list;

typedef struct berth_option {
    const char *name;           // "max-model-len": --max-model-len N
    const char *key;            // "max_model_len", "compilation.mode"; NULL = not in the config
    const char *env;            // "BERTH_PLUGINS"; NULL = not from the environment
    const char *value_name;     // "N", "DIR" for help; NULL for a flag
    const char *help;           // one line, no full stop
    const char *default_text;   // written as on the command line; NULL = zero, NULL, empty list
    const char *const *choices; // names of an ENUM, ends with NULL
    double minimum;             // of I64 and F64; both 0 = no limits
    double maximum;
    uint64_t commands; // bit set of the commands that take it
    size_t offset;     // of the value in the target struct
    berth_option_type type;
    char short_name;  // 'n' for -n; 0 = none
    bool takes_empty; // a STR: an empty environment variable is a value, not as good as none
    char separator;   // of a LIST's items in one text, ','; 0 = each occurrence is one item
} berth_option;

typedef struct berth_option_source {
    berth_option_origin origin;
    const char
        *detail; // "configs/x.yaml:3:1", "BERTH_PLUGINS", who changed it; NULL = nothing to add
} berth_option_source;

// One target struct with its table. `rows`, `target` and what they point to outlive it.
typedef struct berth_options {
    const berth_option *rows; // borrowed
    size_t row_count;
    void *target;                 // borrowed
    berth_arena *arena;           // borrowed; texts that are copied, lists
    berth_option_source *sources; // one per row
    const char **positional;      // arguments that are no options, in order; borrowed from argv
    size_t positional_count;
} berth_options;

// Checks the table by assertion, then sets every default in the target.
BERTH_MUST_CHECK berth_status berth_options_init(berth_options *options, const berth_option *rows,
                                                 size_t row_count, void *target,
                                                 berth_arena *arena);
// Takes argv without the program's and command's names. `--name value`, `--name=value`, `-n value`,
// `-nvalue`; `--` ends the options, `-` alone is an argument; a value that begins with two dashes
// is written with '='. The last of several occurrences counts; a LIST collects them.
// INVALID_ARGUMENT: unknown (with the nearest name), not for this command, value missing or wrong.
// `argv` must outlive `positional`.
BERTH_MUST_CHECK berth_status berth_options_apply_argv(berth_options *options, uint64_t command,
                                                       int argc, char *const *argv);
// Reads the variables that the rows name. An empty one is an empty list for a LIST, "" where the
// row takes_empty, else as if it were not set.
BERTH_MUST_CHECK berth_status berth_options_apply_env(berth_options *options);
// Every key of the mapping must belong to a row; failures have file, line, column and nearest key.
// A null value leaves the option as it is. The texts are copied; the tree may go.
BERTH_MUST_CHECK berth_status berth_options_apply_yaml(berth_options *options,
                                                       const berth_yaml *root);
// Sets one option by its name from a text, unless a stronger source has given it; a wrong text is
// INVALID_ARGUMENT all the same. The text and the source's detail are copied. An unknown name is
// NOT_FOUND, with the nearest.
BERTH_MUST_CHECK berth_status berth_options_set(berth_options *options, const char *name,
                                                const char *text, berth_option_source source);
// The same for a LIST whose items are given one by one and are not split at the separator.
BERTH_MUST_CHECK berth_status berth_options_set_list(berth_options *options, const char *name,
                                                     berth_option_list items,
                                                     berth_option_source source);

// NOT_FOUND for a name that no row has, with the nearest.
BERTH_MUST_CHECK berth_status berth_options_source(const berth_options *options, const char *name,
                                                   berth_option_source *out_source);
// "default", "platform", "config file", "environment", "command line".
const char *berth_option_origin_name(berth_option_origin origin);
// One paragraph of aligned lines, a line per option of the command: name, help, limits, default.
void berth_options_print_help(const berth_options *options, uint64_t command, berth_text *text);
// Every option that has a key, as YAML that berth_options_apply_yaml reads back to the same values;
// the source of each as a comment.
void berth_options_print_yaml(const berth_options *options, berth_text *text);

#endif
