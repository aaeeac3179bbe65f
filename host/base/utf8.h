// SPDX-License-Identifier: Apache-2.0
// UTF-8, strictly: no surrogates, no overlong forms, nothing above U+10FFFF. For prompts, JSON text
// and tokenizers; a streaming writer asks for the incomplete tail so as never to emit half a
// character.
#ifndef BERTH_BASE_UTF8_H
#define BERTH_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

#define BERTH_UTF8_BAD UINT32_MAX // in place of a code point: these bytes are not UTF-8

// The bytes before the first one that is not part of valid UTF-8; text.size when all of it is
// valid.
size_t berth_utf8_valid_bytes(berth_str text);
// INVALID_ARGUMENT names `what` ("the prompt"), the first bad byte and its offset.
BERTH_MUST_CHECK berth_status berth_utf8_check(berth_str text, const char *what);
// Reads the first character of `text` and returns its bytes, 0 at the end. Where the bytes are
// wrong the code is BERTH_UTF8_BAD and the size is that of the longest wrong piece that U+FFFD
// stands for (Unicode's "maximal subpart"), at least 1. out_code may be NULL.
size_t berth_utf8_next(berth_str text, uint32_t *out_code);
// The number of bytes at the end of `text`, 0 to 3, that could still become one valid character
// when more bytes follow.
size_t berth_utf8_tail_bytes(berth_str text);
// Writes a code point and returns its 1 to 4 bytes; 0 for a surrogate or above U+10FFFF.
size_t berth_utf8_encode(uint32_t code, char out_bytes[4]);

#endif
