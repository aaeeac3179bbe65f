// SPDX-License-Identifier: Apache-2.0
// Input: bytes. Output: code points, or where the bytes stop being UTF-8. The one decoder follows
// table 3-7 of the Unicode standard: what the second byte may be depends on the first.
#include "base/utf8.h"

#include <stdbool.h>

// What may follow a first byte.
typedef struct lead {
    size_t size;           // bytes of the whole character; 0 = no first byte
    unsigned char minimum; // of the second byte
    unsigned char maximum;
} lead;

static lead classify(unsigned char byte) {
    if (byte < 0x80) {
        return (lead){.size = 1};
    }
    if (byte >= 0xc2 && byte <= 0xdf) {
        return (lead){.size = 2, .minimum = 0x80, .maximum = 0xbf};
    }
    if (byte >= 0xe0 && byte <= 0xef) {
        return (lead){
            .size = 3,
            .minimum = byte == 0xe0 ? 0xa0 : 0x80, // below: overlong
            .maximum = byte == 0xed ? 0x9f : 0xbf, // above: surrogates
        };
    }
    if (byte >= 0xf0 && byte <= 0xf4) {
        return (lead){
            .size = 4,
            .minimum = byte == 0xf0 ? 0x90 : 0x80, // below: overlong
            .maximum = byte == 0xf4 ? 0x8f : 0xbf, // above: beyond U+10FFFF
        };
    }
    return (lead){0};
}

// The bytes from the start that are a character or the beginning of one, at least 1.
static size_t good_bytes(berth_str text, lead first) {
    size_t good = 1;
    while (good < first.size && good < text.size) {
        const unsigned char byte = (unsigned char)text.data[good];
        const unsigned char minimum = good == 1 ? first.minimum : 0x80;
        const unsigned char maximum = good == 1 ? first.maximum : 0xbf;
        if (byte < minimum || byte > maximum) {
            break;
        }
        ++good;
    }
    return good;
}

size_t berth_utf8_next(berth_str text, uint32_t *out_code) {
    if (text.size == 0) {
        return 0;
    }
    const unsigned char byte = (unsigned char)text.data[0];
    const lead first = classify(byte);
    const size_t good = good_bytes(text, first);
    uint32_t code = BERTH_UTF8_BAD;
    if (good == first.size) {
        code = first.size == 1 ? byte : byte & (0x7fu >> first.size);
        for (size_t i = 1; i < good; ++i) {
            code = code << 6 | ((unsigned char)text.data[i] & 0x3fu);
        }
    }
    if (out_code != NULL) {
        *out_code = code;
    }
    return good;
}

size_t berth_utf8_valid_bytes(berth_str text) {
    size_t valid = 0;
    while (valid < text.size) {
        if ((unsigned char)text.data[valid] < 0x80) {
            ++valid;
            continue;
        }
        uint32_t code = 0;
        const size_t size = berth_utf8_next(berth_str_slice(text, valid, text.size), &code);
        if (code == BERTH_UTF8_BAD) {
            break;
        }
        valid += size;
    }
    return valid;
}

berth_status berth_utf8_check(berth_str text, const char *what) {
    const size_t valid = berth_utf8_valid_bytes(text);
    if (valid == text.size) {
        return BERTH_OK;
    }
    return BERTH_FAIL(INVALID_ARGUMENT,
                      "%s is not UTF-8: wrong byte 0x%02x at offset %zu; convert it to UTF-8", what,
                      (unsigned char)text.data[valid], valid);
}

size_t berth_utf8_tail_bytes(berth_str text) {
    for (size_t size = 1; size <= 3 && size <= text.size; ++size) {
        const berth_str tail = berth_str_slice(text, text.size - size, size);
        const lead first = classify((unsigned char)tail.data[0]);
        if (first.size > 0) {
            const bool is_open = first.size > size && good_bytes(tail, first) == size;
            return is_open ? size : 0;
        }
    }
    return 0;
}

size_t berth_utf8_encode(uint32_t code, char out_bytes[4]) {
    if (code < 0x80) {
        out_bytes[0] = (char)code;
        return 1;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return 0;
    }
    const size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; --i) {
        out_bytes[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out_bytes[0] = (char)((0xf00u >> size & 0xf0u) | code);
    return size;
}
