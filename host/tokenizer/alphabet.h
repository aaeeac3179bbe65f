// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level vocabularies: one printable character for each byte, so that a JSON
// string can spell any sequence of bytes. "Ġthe" is a blank and "the".
#ifndef BERTH_TOKENIZER_ALPHABET_H
#define BERTH_TOKENIZER_ALPHABET_H

#include <stdint.h>

#include "base/str.h"

// The character of a byte, and the byte of a character or -1 when it stands for none.
uint32_t berth_alphabet_char(uint8_t byte);
int32_t berth_alphabet_byte(uint32_t code);

// Spells bytes in the alphabet; `out_spelling` has room for 2 * bytes.size. Returns its bytes.
size_t berth_alphabet_spell(berth_str bytes, char *out_spelling);
// The inverse, into at least spelling.size bytes. False, with `out_bytes` undefined, when a
// character is not of the alphabet. `spelling` is UTF-8.
bool berth_alphabet_read(berth_str spelling, char *out_bytes, size_t *out_size);

#endif
