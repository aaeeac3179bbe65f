// SPDX-License-Identifier: Apache-2.0
// Borrowed strings: a pointer and a size, passed by value, not NUL-terminated, never freed. Used
// for names, lines and pieces of files all over the host; strict number parsing and the "did you
// mean" search live here too. An empty string may have a NULL pointer.
#ifndef BERTH_BASE_STR_H
#define BERTH_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct berth_str {
    const char *data; // borrowed
    size_t size;      // bytes
} berth_str;

// A berth_str of a string literal: BERTH_STR("rms_norm").
#define BERTH_STR(literal) ((berth_str){.data = "" literal, .size = sizeof(literal) - 1})
// printf("op " BERTH_STR_FMT "\n", BERTH_STR_ARG(name));
#define BERTH_STR_FMT      "%.*s"
#define BERTH_STR_ARG(str) (int)(str).size, (str).data

// NULL gives the empty string.
berth_str berth_str_from(const char *cstr);
bool berth_str_equal(berth_str a, berth_str b);
bool berth_str_equal_cstr(berth_str a, const char *b);
// Byte order, a prefix before what it starts: negative, zero or positive.
int berth_str_compare(berth_str a, berth_str b);
bool berth_str_starts_with(berth_str str, berth_str prefix);
bool berth_str_ends_with(berth_str str, berth_str suffix);
// Without leading and trailing blanks, tabs, carriage returns and newlines.
berth_str berth_str_trim(berth_str str);
// The bytes from `first` on, at most `count` of them; both are clamped to the string.
berth_str berth_str_slice(berth_str str, size_t first, size_t count);
// The index of the first `byte`, or str.size.
size_t berth_str_find(berth_str str, char byte);
// Takes the piece before the first `byte` off `rest`. False when nothing is left, so that
//   for (berth_str piece; berth_str_split_first(&rest, ',', &piece);) { … }
// visits "a", "", "b" of "a,,b", one empty piece of "", and the last empty piece of "a,".
// Afterwards `rest` has a NULL pointer.
bool berth_str_split_first(berth_str *rest, char byte, berth_str *out_piece);

// The whole string must be one number in range; no blanks, no leading '+', no empty string.
// INVALID_ARGUMENT says what was found. `i64` and `u64` are decimal; `f64` is a finite decimal
// number with optional fraction and exponent, read the same way whatever the locale; too small
// becomes 0.
BERTH_MUST_CHECK berth_status berth_str_parse_i64(berth_str str, int64_t *out_value);
BERTH_MUST_CHECK berth_status berth_str_parse_u64(berth_str str, uint64_t *out_value);
BERTH_MUST_CHECK berth_status berth_str_parse_f64(berth_str str, double *out_value);

// The candidate nearest to `word` by insertions, deletions, replacements and swaps of neighbours,
// letter case ignored; NULL when none is near enough to be what was meant (a third of the word).
// Candidates that are NULL are skipped. The first of equally near ones wins.
const char *berth_str_nearest(berth_str word, const char *const *candidates, size_t count);

#endif
