// SPDX-License-Identifier: Apache-2.0
// Strings as Python sees them: sequences of characters, with Unicode's white space and letter case.
// All of them are valid UTF-8.
#ifndef BERTH_CHAT_CHARACTERS_H
#define BERTH_CHAT_CHARACTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "base/text.h"

typedef enum berth_jinja_case {
    BERTH_JINJA_UPPER,
    BERTH_JINJA_LOWER,
    BERTH_JINJA_TITLE,      // every letter behind something that is none is large
    BERTH_JINJA_CAPITALIZE, // the first character large, the others small
    BERTH_JINJA_SWAP,
} berth_jinja_case;

typedef enum berth_jinja_class {
    BERTH_JINJA_SPACE,
    BERTH_JINJA_PRINTABLE, // what repr() leaves as it is
    BERTH_JINJA_ALPHABETIC,
    BERTH_JINJA_DIGIT, // a decimal one
    BERTH_JINJA_NUMERIC,
    BERTH_JINJA_CASED,
    BERTH_JINJA_CAPITAL,
    BERTH_JINJA_SMALL,
} berth_jinja_class;

#define BERTH_JINJA_STRIP_LEFT  1u
#define BERTH_JINJA_STRIP_RIGHT 2u

bool berth_jinja_char_is(uint32_t code, berth_jinja_class class);
// Characters; the byte at which the character of a number begins, text.size behind the last.
size_t berth_jinja_char_count(berth_str text);
size_t berth_jinja_char_offset(berth_str text, size_t index);
// The character that ends at `end`, and where it begins.
uint32_t berth_jinja_char_before(berth_str text, size_t end, size_t *out_start);
// Without the characters of `set` at its ends; of white space when `set` has NULL data.
berth_str berth_jinja_strip(berth_str text, berth_str set, unsigned sides);
void berth_jinja_change_case(berth_str text, berth_jinja_case to, berth_text *out);
// The place of `part` from `from` on, or SIZE_MAX.
size_t berth_jinja_find(berth_str text, berth_str part, size_t from);

#endif
