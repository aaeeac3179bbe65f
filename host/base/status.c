// SPDX-License-Identifier: Apache-2.0
// Input: a code, a place and a printf text. Output: this thread's report. Thread-local and of fixed
// size because a failure must be reportable when memory has run out, and two threads may fail at
// once.
#include "base/status.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ELLIPSIS       "\xe2\x80\xa6"
#define ELLIPSIS_BYTES (sizeof(ELLIPSIS) - 1)

// A bounded line under construction.
typedef struct line {
    char *data;
    size_t size;
    size_t used; // < size
    bool is_cut;
} line;

// Why: the only writable state of base that no caller passes in; see the first paragraph.
static _Thread_local berth_status_report current;
static _Thread_local uint64_t serial;
static _Thread_local char message[BERTH_STATUS_TEXT_BYTES];

// Ends a text of `size` bytes that did not fit with "…", never inside a character.
static size_t cut(char *text, size_t size) {
    if (size <= ELLIPSIS_BYTES) {
        text[0] = '\0';
        return 0;
    }
    size_t end = size - 1 - ELLIPSIS_BYTES;
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) {
        --end;
    }
    memcpy(text + end, ELLIPSIS, ELLIPSIS_BYTES + 1);
    return end + ELLIPSIS_BYTES;
}

static void add_frame(const char *file, int line_number, const char *text) {
    const size_t room = BERTH_STATUS_TEXT_BYTES - current.text_bytes;
    if (current.frame_count == BERTH_STATUS_FRAMES || room <= ELLIPSIS_BYTES + 1) {
        return;
    }
    char *place = current.text + current.text_bytes;
    size_t size = strlen(text);
    if (size < room) {
        memcpy(place, text, size + 1);
    } else {
        memcpy(place, text, room);
        size = cut(place, room);
    }
    current.frames[current.frame_count++] = (berth_status_frame){
        .file = file,
        .line = line_number,
        .text_offset = current.text_bytes,
    };
    current.text_bytes += (uint32_t)size + 1;
}

// Why a copy first: the arguments may point into the report that is about to be replaced.
static void format_text(char text[BERTH_STATUS_TEXT_BYTES], const char *format, va_list arguments) {
    const int size = vsnprintf(text, BERTH_STATUS_TEXT_BYTES, format, arguments);
    if (size < 0) {
        text[0] = '\0';
    } else if ((size_t)size >= BERTH_STATUS_TEXT_BYTES) {
        cut(text, BERTH_STATUS_TEXT_BYTES);
    }
}

berth_status berth_status_fail(berth_status code, const char *file, int line_number,
                               const char *format, ...) {
    assert(code != BERTH_OK);
    char text[BERTH_STATUS_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_text(text, format, arguments);
    va_end(arguments);
    ++serial;
    current.code = code;
    current.frame_count = 0;
    current.text_bytes = 0;
    add_frame(file, line_number, text);
    return code;
}

berth_status berth_status_fail_in(berth_status code, const char *where, const char *format,
                                  va_list arguments) {
    char text[BERTH_STATUS_TEXT_BYTES];
    format_text(text, format, arguments);
    return berth_status_fail(code, __FILE__, __LINE__, "%s: %s", where, text);
}

void berth_status_note(const char *file, int line_number, const char *format, ...) {
    if (current.code == BERTH_OK) {
        return;
    }
    char text[BERTH_STATUS_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_text(text, format, arguments);
    va_end(arguments);
    add_frame(file, line_number, text);
}

berth_status berth_status_code(void) {
    return current.code;
}

uint64_t berth_status_serial(void) {
    return serial;
}

static line line_start(char *buffer, size_t size) {
    if (size > 0) {
        buffer[0] = '\0';
    }
    return (line){.data = buffer, .size = size, .is_cut = size == 0};
}

static void line_add(line *out, const char *text) {
    for (; *text != '\0' && !out->is_cut; ++text) {
        if (out->used + 1 >= out->size) {
            out->is_cut = true;
            out->data[out->used] = '\0';
            out->used = cut(out->data, out->size);
            return;
        }
        const unsigned char byte = (unsigned char)*text;
        out->data[out->used++] = byte < 0x20 || byte == 0x7f ? ' ' : *text;
    }
    if (!out->is_cut) {
        out->data[out->used] = '\0';
    }
}

// Adds a newline, which line_add would turn into a blank.
static void line_break(line *out) {
    line_add(out, " ");
    if (!out->is_cut) {
        out->data[out->used - 1] = '\n';
    }
}

static const char *frame_text(const berth_status_report *report, size_t index) {
    return report->text + report->frames[index].text_offset;
}

size_t berth_status_report_text(const berth_status_report *report, char *buffer, size_t size) {
    line out = line_start(buffer, size);
    for (size_t i = 0; i < report->frame_count; ++i) {
        if (i > 0) {
            line_add(&out, i == 1 ? " (while " : "; while ");
        }
        line_add(&out, frame_text(report, i));
    }
    if (report->frame_count > 1) {
        line_add(&out, ")");
    }
    return out.used;
}

size_t berth_status_text(char *buffer, size_t size) {
    return berth_status_report_text(&current, buffer, size);
}

const char *berth_status_message(void) {
    berth_status_text(message, sizeof(message));
    return message;
}

size_t berth_status_trace(char *buffer, size_t size) {
    line out = line_start(buffer, size);
    for (size_t i = 0; i < current.frame_count; ++i) {
        char number[16];
        snprintf(number, sizeof(number), ":%d: ", (int)current.frames[i].line);
        if (i > 0) {
            line_break(&out);
            line_add(&out, "while ");
        }
        line_add(&out, current.frames[i].file);
        line_add(&out, number);
        line_add(&out, frame_text(&current, i));
    }
    return out.used;
}

void berth_status_clear(void) {
    current.code = BERTH_OK;
    current.frame_count = 0;
    current.text_bytes = 0;
}

void berth_status_take(berth_status_report *out_report) {
    *out_report = current;
    berth_status_clear();
}

berth_status berth_status_restore(const berth_status_report *report) {
    ++serial;
    current = *report;
    return current.code;
}

const char *berth_status_name(berth_status code) {
    static const char *const names[] = {
        [BERTH_OK] = "OK",
        [BERTH_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [BERTH_NOT_FOUND] = "NOT_FOUND",
        [BERTH_ALREADY_EXISTS] = "ALREADY_EXISTS",
        [BERTH_UNSUPPORTED] = "UNSUPPORTED",
        [BERTH_DECLINED] = "DECLINED",
        [BERTH_WRONG_STATE] = "WRONG_STATE",
        [BERTH_OUT_OF_MEMORY] = "OUT_OF_MEMORY",
        [BERTH_UNAVAILABLE] = "UNAVAILABLE",
        [BERTH_CORRUPT] = "CORRUPT",
        [BERTH_IO] = "IO",
        [BERTH_INCOMPATIBLE] = "INCOMPATIBLE",
        [BERTH_SEALED] = "SEALED",
        [BERTH_INTERNAL] = "INTERNAL",
    };
    const bool is_known = code >= 0 && (size_t)code < sizeof(names) / sizeof(names[0]);
    return names[is_known ? code : BERTH_INTERNAL];
}
