// SPDX-License-Identifier: Apache-2.0
// Bytes ↔ characters of the byte-level alphabet. Bytes that print keep their own character, Latin-1
// included; the 68 others take U+0100 … U+0143 in ascending order.
#include "tokenizer/alphabet.h"

#include <stdbool.h>

#include "base/utf8.h"

// The bytes without a character of their own: 0x00–0x20, 0x7F–0xA0 and 0xAD.
#define CONTROL_LAST  0x20
#define GAP_FIRST     0x7F
#define GAP_LAST      0xA0
#define SOFT_HYPHEN   0xAD
#define MOVED_CONTROL 0x100
#define MOVED_GAP     (MOVED_CONTROL + CONTROL_LAST + 1)
#define MOVED_HYPHEN  (MOVED_GAP + GAP_LAST - GAP_FIRST + 1)

uint32_t berth_alphabet_char(uint8_t byte) {
    if (byte <= CONTROL_LAST) {
        return MOVED_CONTROL + byte;
    }
    if (byte >= GAP_FIRST && byte <= GAP_LAST) {
        return MOVED_GAP + (byte - GAP_FIRST);
    }
    return byte == SOFT_HYPHEN ? MOVED_HYPHEN : byte;
}

int32_t berth_alphabet_byte(uint32_t code) {
    if (code > MOVED_HYPHEN) {
        return -1;
    }
    if (code == MOVED_HYPHEN) {
        return SOFT_HYPHEN;
    }
    if (code >= MOVED_GAP) {
        return (int32_t)(code - MOVED_GAP + GAP_FIRST);
    }
    if (code >= MOVED_CONTROL) {
        return (int32_t)(code - MOVED_CONTROL);
    }
    return berth_alphabet_char((uint8_t)code) == code ? (int32_t)code : -1;
}

size_t berth_alphabet_spell(berth_str bytes, char *out_spelling) {
    size_t size = 0;
    for (size_t i = 0; i < bytes.size; ++i) {
        const uint32_t code = berth_alphabet_char((uint8_t)bytes.data[i]);
        char encoded[4];
        const size_t count = berth_utf8_encode(code, encoded);
        for (size_t k = 0; k < count; ++k) {
            out_spelling[size++] = encoded[k];
        }
    }
    return size;
}

bool berth_alphabet_read(berth_str spelling, char *out_bytes, size_t *out_size) {
    size_t size = 0;
    for (size_t at = 0; at < spelling.size;) {
        uint32_t code;
        at += berth_utf8_next(berth_str_slice(spelling, at, 4), &code);
        const int32_t byte = berth_alphabet_byte(code);
        if (byte < 0) {
            return false;
        }
        out_bytes[size++] = (char)byte;
    }
    *out_size = size;
    return true;
}
