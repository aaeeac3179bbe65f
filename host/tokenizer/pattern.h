// SPDX-License-Identifier: Apache-2.0
// A compiled pattern and where it matches. The only place that knows PCRE2.
#ifndef BERTH_TOKENIZER_PATTERN_H
#define BERTH_TOKENIZER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

// Immutable; any number of threads may match, each with its own matcher.
typedef struct berth_pattern berth_pattern;
typedef struct berth_matcher berth_matcher;

typedef struct berth_match {
    bool is_found;
    size_t start, end; // bytes of the text; a match may be empty
} berth_match;

// `regex` is Oniguruma's dialect. UNSUPPORTED says what it has that is not supported.
BERTH_MUST_CHECK berth_status berth_pattern_compile(berth_str regex, berth_pattern **out_pattern);
// A pattern that matches exactly these bytes.
BERTH_MUST_CHECK berth_status berth_pattern_literal(berth_str text, berth_pattern **out_pattern);
void berth_pattern_destroy(berth_pattern *pattern);

BERTH_MUST_CHECK berth_status berth_matcher_create(berth_matcher **out_matcher);
void berth_matcher_destroy(berth_matcher *matcher);

// The first match at or behind `from`, which is the start of a character. `text` is valid UTF-8 and
// all that look-arounds see.
BERTH_MUST_CHECK berth_status berth_pattern_find(const berth_pattern *pattern,
                                                 berth_matcher *matcher, berth_str text,
                                                 size_t from, berth_match *out_match);

#endif
