// SPDX-License-Identifier: Apache-2.0
// JSON to read: a text becomes an immutable tree that knows its file and every value's place, so
// that a failure says "config.json: rope_parameters.rope_theta: …". For checkpoint files (config,
// index, tokenizer, golden data). Writing is base/json_writer.h.
//
// Strict RFC 8259: UTF-8 only, duplicate keys, numbers out of range and trailing text are CORRUPT.
//
// Paths are keys joined by dots, a number being an index into an array: "architectures.0". "" is
// the node itself. A key that has a dot in it is reached with berth_json_member.
#ifndef BERTH_BASE_JSON_H
#define BERTH_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef enum berth_json_kind {
    BERTH_JSON_NULL,
    BERTH_JSON_BOOL,
    BERTH_JSON_INTEGER, // fits int64_t; a wider one is a real
    BERTH_JSON_REAL,
    BERTH_JSON_STRING,
    BERTH_JSON_ARRAY,
    BERTH_JSON_OBJECT,
} berth_json_kind;

// One value of a tree. Nodes are borrowed until the tree's root is destroyed, strings too (their
// data ends with NUL). A tree may be read by any number of threads.
typedef struct berth_json berth_json;

typedef struct berth_json_limits {
    size_t bytes;   // of text; 0 = 64 MiB
    uint32_t depth; // of nested arrays and objects; 0 = 64, at most 512
} berth_json_limits;

// `limits` may be NULL. `name` stands for the file in errors.
BERTH_MUST_CHECK berth_status berth_json_load(const char *path, const berth_json_limits *limits,
                                              berth_json **out_root);
BERTH_MUST_CHECK berth_status berth_json_parse(berth_str text, const char *name,
                                               const berth_json_limits *limits,
                                               berth_json **out_root);

// NULL when there is no such value; a JSON null is a value here.
const berth_json *berth_json_find(const berth_json *node, const char *path);
// The same for one key of an object, whatever characters it has. Takes constant time on average.
const berth_json *berth_json_member(const berth_json *node, berth_str key);
// True when there is a value and it is not null.
bool berth_json_has(const berth_json *node, const char *path);
berth_json_kind berth_json_kind_of(const berth_json *node);
const char *berth_json_kind_name(berth_json_kind kind); // "an integer", "an array", …

// Elements of an array or members of an object, in the order of the text; 0 for other kinds.
size_t berth_json_size(const berth_json *node);
const berth_json *berth_json_at(const berth_json *node, size_t index); // index < size
berth_str berth_json_key_at(const berth_json *node, size_t index);     // of an object

// The value, or false when the node is of another kind; f64 takes integers as well.
bool berth_json_as_i64(const berth_json *node, int64_t *out_value);
bool berth_json_as_f64(const berth_json *node, double *out_value);
bool berth_json_as_bool(const berth_json *node, bool *out_value);
bool berth_json_as_str(const berth_json *node, berth_str *out_value);

// NOT_FOUND when the value is missing or null; INVALID_ARGUMENT when it has another type or does
// not fit. Both name file, place, what is needed and what was found. f64 takes integers as well;
// i64 takes no reals. On failure the result is unchanged.
BERTH_MUST_CHECK berth_status berth_json_get_i64(const berth_json *node, const char *path,
                                                 int64_t *out_value);
BERTH_MUST_CHECK berth_status berth_json_get_f64(const berth_json *node, const char *path,
                                                 double *out_value);
BERTH_MUST_CHECK berth_status berth_json_get_bool(const berth_json *node, const char *path,
                                                  bool *out_value);
BERTH_MUST_CHECK berth_status berth_json_get_str(const berth_json *node, const char *path,
                                                 berth_str *out_value);
// An array or object under the path, with the same failures.
BERTH_MUST_CHECK berth_status berth_json_get_array(const berth_json *node, const char *path,
                                                   const berth_json **out_array);
BERTH_MUST_CHECK berth_status berth_json_get_object(const berth_json *node, const char *path,
                                                    const berth_json **out_object);

// The same, but a missing or null value gives the fallback.
BERTH_MUST_CHECK berth_status berth_json_i64_or(const berth_json *node, const char *path,
                                                int64_t fallback, int64_t *out_value);
BERTH_MUST_CHECK berth_status berth_json_f64_or(const berth_json *node, const char *path,
                                                double fallback, double *out_value);
BERTH_MUST_CHECK berth_status berth_json_bool_or(const berth_json *node, const char *path,
                                                 bool fallback, bool *out_value);
BERTH_MUST_CHECK berth_status berth_json_str_or(const berth_json *node, const char *path,
                                                berth_str fallback, berth_str *out_value);

// The name given at load or parse.
const char *berth_json_file(const berth_json *node);
// Writes the path from the root, "layers.3.type", "" for the root, cut to `size` > 0; returns
// `buffer`.
const char *berth_json_place(const berth_json *node, char *buffer, size_t size);
// A failure of the caller's own about this value: "FILE: PLACE: text".
BERTH_MUST_CHECK berth_status berth_json_fail(berth_status code, const berth_json *node,
                                              const char *format, ...) BERTH_PRINTF(3, 4);
void berth_json_destroy(berth_json *root);

#endif
