// SPDX-License-Identifier: Apache-2.0
// YAML to read, for what people write by hand: plugin manifests and configuration. A text becomes
// an immutable tree of mappings, sequences and scalars that know their line and column. The input
// may be hostile: size, depth and number of nodes are limited, and aliases, anchors, tags,
// duplicate keys, keys that are no scalars and a second document are refused. Scalars have no type
// until asked for one.
//
// Every failure reads "file:line:column: key.path: what, why, what to do".
//
// Paths are keys joined by dots, a number being an index into a sequence; "" is the node itself. A
// key that has a dot in it is reached with berth_yaml_member.
#ifndef BERTH_BASE_YAML_H
#define BERTH_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

typedef enum berth_yaml_kind {
    BERTH_YAML_SCALAR,
    BERTH_YAML_SEQUENCE,
    BERTH_YAML_MAPPING,
} berth_yaml_kind;

// Nodes are borrowed until the root is destroyed, strings too (their data ends with NUL).
typedef struct berth_yaml berth_yaml;

typedef struct berth_yaml_limits {
    size_t bytes;   // of text; 0 = 64 KiB
    uint32_t depth; // of nested sequences and mappings; 0 = 16, at most 64
    uint32_t nodes; // scalars, sequences, mappings and keys; 0 = 1,000
} berth_yaml_limits;

// `limits` may be NULL. `name` stands for the file in errors. A text without a document gives an
// empty mapping. CORRUPT: not YAML, or refused as above; OUT_OF_MEMORY: beyond a limit.
BERTH_MUST_CHECK berth_status berth_yaml_load(const char *path, const berth_yaml_limits *limits,
                                              berth_yaml **out_root);
BERTH_MUST_CHECK berth_status berth_yaml_parse(berth_str text, const char *name,
                                               const berth_yaml_limits *limits,
                                               berth_yaml **out_root);

// NULL when there is no such value.
const berth_yaml *berth_yaml_find(const berth_yaml *node, const char *path);
const berth_yaml *berth_yaml_member(const berth_yaml *node, berth_str key);
berth_yaml_kind berth_yaml_kind_of(const berth_yaml *node);
// True for a plain scalar that is empty, "~" or "null".
bool berth_yaml_is_null(const berth_yaml *node);
// Written in quotes or as a block: such a scalar is a string and nothing else.
bool berth_yaml_is_quoted(const berth_yaml *node);
berth_str berth_yaml_scalar(const berth_yaml *node); // a scalar's text; "" for other kinds
uint32_t berth_yaml_line(const berth_yaml *node);    // from 1; a member's is its key's
uint32_t berth_yaml_column(const berth_yaml *node);
const char *berth_yaml_file(const berth_yaml *node);

// The parent and the position in it; NULL for the root.
const berth_yaml *berth_yaml_parent(const berth_yaml *node, uint32_t *out_index);

// Elements or members in the order of the text; 0 for a scalar.
size_t berth_yaml_size(const berth_yaml *node);
const berth_yaml *berth_yaml_at(const berth_yaml *node, size_t index); // index < size
berth_str berth_yaml_key_at(const berth_yaml *node, size_t index);     // of a mapping

// NOT_FOUND when the value is missing or null; INVALID_ARGUMENT when it has another type. Quoted
// scalars are strings only; a bool is true, false, yes or no. On failure the result is unchanged.
BERTH_MUST_CHECK berth_status berth_yaml_get_str(const berth_yaml *node, const char *path,
                                                 berth_str *out_value);
BERTH_MUST_CHECK berth_status berth_yaml_get_i64(const berth_yaml *node, const char *path,
                                                 int64_t *out_value);
BERTH_MUST_CHECK berth_status berth_yaml_get_f64(const berth_yaml *node, const char *path,
                                                 double *out_value);
BERTH_MUST_CHECK berth_status berth_yaml_get_bool(const berth_yaml *node, const char *path,
                                                  bool *out_value);
// A sequence of scalars, as an array in the arena; an empty sequence is a list of none.
BERTH_MUST_CHECK berth_status berth_yaml_get_list(const berth_yaml *node, const char *path,
                                                  berth_arena *arena, berth_str **out_items,
                                                  size_t *out_count);

// A failure of the caller's own about this value: "file:line:column: key.path: text".
BERTH_MUST_CHECK berth_status berth_yaml_fail(berth_status code, const berth_yaml *node,
                                              const char *format, ...) BERTH_PRINTF(3, 4);
// INVALID_ARGUMENT for the first key of the mapping that is neither in `keys` nor starts with "x-";
// names the nearest valid key.
BERTH_MUST_CHECK berth_status berth_yaml_check_keys(const berth_yaml *mapping,
                                                    const char *const *keys, size_t count);
void berth_yaml_destroy(berth_yaml *root);

#endif
