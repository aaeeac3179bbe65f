// SPDX-License-Identifier: Apache-2.0
// What Unicode says of characters: white space, words, small letters and the normal forms. The only
// place that knows utf8proc.
#ifndef BERTH_TOKENIZER_UNICODE_H
#define BERTH_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/str.h"
#include "base/text.h"

typedef enum berth_unicode_form {
    BERTH_UNICODE_NFC,
    BERTH_UNICODE_NFD,
    BERTH_UNICODE_NFKC,
    BERTH_UNICODE_NFKD,
} berth_unicode_form;

// What one thread needs to normalize; zeroed is ready.
typedef struct berth_unicode_scratch {
    berth_array(int32_t) codes;
    berth_array(int32_t) spare;
} berth_unicode_scratch;

// White space, and a character of a word after UTS 18. BERTH_UTF8_BAD is neither.
bool berth_unicode_is_space(uint32_t code);
bool berth_unicode_is_word(uint32_t code);

// The character of valid UTF-8 that ends at a place, and the one that begins there: BERTH_UTF8_BAD
// with a size of 0 when there is none.
uint32_t berth_unicode_char_before(berth_str text, size_t at, size_t *out_size);
uint32_t berth_unicode_char_at(berth_str text, size_t at, size_t *out_size);

size_t berth_unicode_char_count(berth_str text); // of valid UTF-8

// The first of what readers take for characters, in text that is not empty.
size_t berth_unicode_grapheme_bytes(berth_str text);
// A mark; a mark that takes no room; what stands for no character; Han, as BERT counts it.
bool berth_unicode_is_mark(uint32_t code);
bool berth_unicode_is_flat_mark(uint32_t code);
bool berth_unicode_is_control(uint32_t code);
bool berth_unicode_is_han(uint32_t code);
void berth_unicode_add(berth_text *out, uint32_t code);

// Appends the text in small letters, character by character.
void berth_unicode_lower(berth_str text, berth_text *out);

// The quick check: true says that valid UTF-8 is in the form already, false that it may be.
bool berth_unicode_is_normal(berth_str text, berth_unicode_form form);
// Appends the normal form of valid UTF-8 in O(n log n).
BERTH_MUST_CHECK berth_status berth_unicode_normalize(berth_str text, berth_unicode_form form,
                                                      berth_unicode_scratch *scratch,
                                                      berth_text *out);
void berth_unicode_scratch_deinit(berth_unicode_scratch *scratch);

#endif
