// SPDX-License-Identifier: Apache-2.0
// The words of a graph's text, private to graph: names, numbers, strings, marks, and the types that
// are made of them. The parser above it knows lines.
#ifndef BERTH_GRAPH_SCAN_H
#define BERTH_GRAPH_SCAN_H

#include "graph/graph.h"

typedef enum berth_word_kind {
    BERTH_WORD_END,
    BERTH_WORD_NAME,   // letters, digits, '_'; begins with no digit
    BERTH_WORD_NUMBER, // without a sign: 12, 1.5, 1e-06
    BERTH_WORD_STRING, // text without the quotes, still escaped
    BERTH_WORD_MARK,   // one other character
} berth_word_kind;

// One look-ahead word over a source that outlives it.
typedef struct berth_scan {
    berth_str source;
    size_t at; // behind the word
    berth_word_kind kind;
    berth_str word;
    size_t word_at;
} berth_scan;

// INVALID_ARGUMENT as "graph text:LINE:COLUMN: …" at an offset into the source.
BERTH_MUST_CHECK berth_status berth_scan_fail(const berth_scan *scan, size_t at, const char *format,
                                              ...) BERTH_PRINTF(3, 4);
// Takes the first word of the source.
BERTH_MUST_CHECK berth_status berth_scan_begin(berth_scan *scan, berth_str source);
BERTH_MUST_CHECK berth_status berth_scan_next(berth_scan *scan);
bool berth_scan_is_mark(const berth_scan *scan, char mark);
bool berth_scan_is_name(const berth_scan *scan, const char *name);
// Takes the word when it is the mark or name, and says whether it was.
BERTH_MUST_CHECK berth_status berth_scan_accept(berth_scan *scan, const char *word, bool *out_is);
BERTH_MUST_CHECK berth_status berth_scan_expect(berth_scan *scan, const char *word);
// `what` names the thing in the failure.
BERTH_MUST_CHECK berth_status berth_scan_name(berth_scan *scan, const char *what,
                                              berth_str *out_name);
BERTH_MUST_CHECK berth_status berth_scan_i64(berth_scan *scan, const char *what,
                                             int64_t *out_value); // without a sign
BERTH_MUST_CHECK berth_status berth_scan_string(berth_scan *scan, berth_arena *arena,
                                                const char **out_string);
// 1, -1.5e3, "text", true, [1, 2]: kind and content of the attribute, copied into the arena. An
// empty list has the kind that is declared.
BERTH_MUST_CHECK berth_status berth_scan_constant(berth_scan *scan, berth_arena *arena,
                                                  uint64_t declared, berth_attribute *out);
// "f32[s0, 64]"
BERTH_MUST_CHECK berth_status berth_scan_type(berth_scan *scan, berth_value_type *out_type);

#endif
