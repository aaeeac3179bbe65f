// SPDX-License-Identifier: Apache-2.0
// Input: pieces. Output: one NUL-terminated text on the heap, never longer than its limit. Growth
// doubles, so that n bytes cost O(n); the first failure sticks until the text is cleared.
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

#define FIRST_CAPACITY 64

void berth_text_init(berth_text *text, size_t limit_bytes) {
    *text = (berth_text){.limit = limit_bytes};
}

// Why no report here: the text may be one that renders a report. The check at the end makes it.
static void fail(berth_text *text, size_t wanted) {
    text->failed = BERTH_OUT_OF_MEMORY;
    text->wanted = wanted;
}

// Makes room for `added` more bytes and the NUL.
static bool reserve(berth_text *text, size_t added) {
    if (text->failed != BERTH_OK) {
        return false;
    }
    if (added > text->limit - text->size) {
        fail(text, added > SIZE_MAX - text->size ? SIZE_MAX : text->size + added);
        return false;
    }
    const size_t wanted = text->size + added + 1;
    if (wanted <= text->capacity) {
        return true;
    }
    size_t capacity = text->capacity < FIRST_CAPACITY ? FIRST_CAPACITY : text->capacity;
    while (capacity < wanted) {
        capacity = capacity > SIZE_MAX / 2 ? wanted : capacity * 2;
    }
    char *data = berth_realloc(text->data, capacity);
    if (data == NULL) {
        fail(text, wanted - 1);
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void berth_text_add(berth_text *text, berth_str str) {
    if (str.size > 0 && reserve(text, str.size)) {
        memcpy(text->data + text->size, str.data, str.size);
        text->size += str.size;
        text->data[text->size] = '\0';
    }
}

void berth_text_add_cstr(berth_text *text, const char *cstr) {
    berth_text_add(text, berth_str_from(cstr));
}

void berth_text_add_char(berth_text *text, char byte) {
    berth_text_add(text, (berth_str){.data = &byte, .size = 1});
}

void berth_text_add_format(berth_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (size <= 0 || !reserve(text, (size_t)size)) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(text->data + text->size, (size_t)size + 1, format, arguments);
    va_end(arguments);
    text->size += (size_t)size;
}

void berth_text_add_f64(berth_text *text, double value) {
    char number[40];
    for (int precision = 15; precision <= 17; ++precision) {
        snprintf(number, sizeof(number), "%.*g", precision, value);
        if (strtod(number, NULL) == value) {
            break;
        }
    }
    // Only a library that has set another locale could make this a comma.
    char *comma = strchr(number, ',');
    if (comma != NULL) {
        *comma = '.';
    }
    berth_text_add_cstr(text, number);
    if (strspn(number, "-0123456789") == strlen(number)) {
        berth_text_add_cstr(text, ".0");
    }
}

// The escape of an ASCII byte inside a JSON string, NULL when it stands for itself.
static const char *short_escape(char byte) {
    switch (byte) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        return NULL;
    }
}

static bool needs_escape(unsigned char byte) {
    return byte < 0x20 || byte == 0x7f || byte == '"' || byte == '\\' || byte >= 0x80;
}

void berth_text_add_json(berth_text *text, berth_str str) {
    while (str.size > 0) {
        size_t plain = 0;
        while (plain < str.size && !needs_escape((unsigned char)str.data[plain])) {
            ++plain;
        }
        berth_text_add(text, berth_str_slice(str, 0, plain));
        str = berth_str_slice(str, plain, str.size);
        uint32_t code = 0;
        const size_t size = berth_utf8_next(str, &code);
        if (size == 0) {
            return;
        }
        if (code == BERTH_UTF8_BAD) {
            berth_text_add(text, BERTH_STR("\xef\xbf\xbd"));
        } else if (size > 1) {
            berth_text_add(text, berth_str_slice(str, 0, size));
        } else if (short_escape(str.data[0]) != NULL) {
            berth_text_add_cstr(text, short_escape(str.data[0]));
        } else {
            berth_text_add_format(text, "\\u%04x", (unsigned)code);
        }
        str = berth_str_slice(str, size, str.size);
    }
}

berth_str berth_text_str(const berth_text *text) {
    return (berth_str){.data = text->data == NULL ? "" : text->data, .size = text->size};
}

berth_status berth_text_finish(const berth_text *text, const char **out_cstr) {
    if (text->failed != BERTH_OK && text->wanted > text->limit) {
        return BERTH_FAIL(OUT_OF_MEMORY, "text of %zu bytes or more: its limit is %zu",
                          text->wanted, text->limit);
    }
    if (text->failed != BERTH_OK) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a text of %zu bytes", text->wanted);
    }
    if (out_cstr != NULL) {
        *out_cstr = text->data == NULL ? "" : text->data;
    }
    return BERTH_OK;
}

void berth_text_clear(berth_text *text) {
    text->size = 0;
    text->failed = BERTH_OK;
    if (text->data != NULL) {
        text->data[0] = '\0';
    }
}

void berth_text_deinit(berth_text *text) {
    berth_free(text->data);
    *text = (berth_text){.limit = text->limit};
}
