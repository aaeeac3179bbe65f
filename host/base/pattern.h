// SPDX-License-Identifier: Apache-2.0
// A compiled pattern and where it matches. The only place that knows PCRE2.
#ifndef BERTH_BASE_PATTERN_H
#define BERTH_BASE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/str.h"
#include "base/text.h"

// Immutable; any number of threads may match, each with its own matcher.
typedef struct berth_pattern berth_pattern;
typedef struct berth_matcher berth_matcher;

typedef struct berth_match {
    bool is_found;
    size_t start, end; // bytes of the text; a match may be empty
} berth_match;

// `regex` is Oniguruma's dialect. UNSUPPORTED says what it has that is not supported.
BERTH_MUST_CHECK berth_status berth_pattern_compile(berth_str regex, berth_pattern **out_pattern);
// `regex` is PCRE2's own dialect, which what people write in Perl's and Python's is.
BERTH_MUST_CHECK berth_status berth_pattern_compile_perl(berth_str regex,
                                                         berth_pattern **out_pattern);
// A pattern that matches exactly these bytes.
BERTH_MUST_CHECK berth_status berth_pattern_literal(berth_str text, berth_pattern **out_pattern);
// The pattern of a Split or a Replace: {"String": text} or {"Regex": regex}.
BERTH_MUST_CHECK berth_status berth_pattern_read(const berth_json *component,
                                                 berth_pattern **out_pattern);
void berth_pattern_destroy(berth_pattern *pattern);

BERTH_MUST_CHECK berth_status berth_matcher_create(berth_matcher **out_matcher);
void berth_matcher_destroy(berth_matcher *matcher);

// The matches in a text from left to right; zeroed but for the first three members is the start. An
// empty match counts unless the one before ends there; an empty text has none.
typedef struct berth_matches {
    const berth_pattern *pattern;
    berth_matcher *matcher;
    berth_str text;  // valid UTF-8, and all that look-arounds see
    size_t from;     // the next search begins here
    size_t last_end; // of the match before, if there was one
    bool has_last;
} berth_matches;

BERTH_MUST_CHECK berth_status berth_pattern_next(berth_matches *matches, berth_match *out_match);
// Appends the text with `content` in place of every match.
BERTH_MUST_CHECK berth_status berth_pattern_replace(berth_matches *matches, berth_str content,
                                                    berth_text *out);

#endif
