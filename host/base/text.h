// SPDX-License-Identifier: Apache-2.0
// Growing text with a maximum given at birth. It is sticky: after the first failure (too long, out
// of memory) every call does nothing, and the one check is at berth_text_finish. For whatever the
// host prints, renders or sends; fixed error texts are base/status.h's business.
#ifndef BERTH_BASE_TEXT_H
#define BERTH_BASE_TEXT_H

#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

typedef struct berth_text {
    char *data;          // owned; NULL while nothing was added, else ends with NUL at `size`
    size_t size;         // bytes without the NUL
    size_t capacity;     // private
    size_t limit;        // the most bytes `size` may reach
    berth_status failed; // BERTH_OK, or the first failure
    size_t wanted;       // private
} berth_text;

void berth_text_init(berth_text *text, size_t limit_bytes);
void berth_text_add(berth_text *text, berth_str str);
void berth_text_add_cstr(berth_text *text, const char *cstr);
void berth_text_add_char(berth_text *text, char byte);
// The arguments must not point into the text itself.
void berth_text_add_format(berth_text *text, const char *format, ...) BERTH_PRINTF(2, 3);
// The shortest decimal of up to 17 digits that reads back the same, with a point or an exponent;
// "inf" and "nan" as printf has them.
void berth_text_add_f64(berth_text *text, double value);
// Adds `str` as the inside of a JSON string, without the quotes. Bytes that are not UTF-8 become
// U+FFFD, so that the result is always valid JSON.
void berth_text_add_json(berth_text *text, berth_str str);
// What was added so far, borrowed until the next call that changes the text.
berth_str berth_text_str(const berth_text *text);
// OK and the NUL-terminated text, borrowed until the next call that changes it (out_cstr may be
// NULL), or OUT_OF_MEMORY with a report that names the limit.
BERTH_MUST_CHECK berth_status berth_text_finish(const berth_text *text, const char **out_cstr);
// Empties the text, forgets a failure and keeps the memory.
void berth_text_clear(berth_text *text);
void berth_text_deinit(berth_text *text);

#endif
