// SPDX-License-Identifier: Apache-2.0
// Failures: a code that travels as a return value, and a report that explains it. The report is
// kept per thread in a fixed buffer: nothing is allocated, nothing has to be freed, and a thread
// sees only its own failures. Every host module uses this; it knows nothing of logging, since
// whoever receives a failure either passes it on or reports it, never both.
#ifndef BERTH_BASE_STATUS_H
#define BERTH_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <berth/status.h>

#define BERTH_STATUS_FRAMES     16
#define BERTH_STATUS_TEXT_BYTES 4096

// Starts a new report and yields the code: `return BERTH_FAIL(NOT_FOUND, "no op '%s'", name);`
// The text is one line in the form "what: where, why, what to do". To fail with a code that is only
// known at run time, call berth_status_fail with __FILE__ and __LINE__.
// Why the comma: an analyzer then knows that a failure is never BERTH_OK.
#define BERTH_FAIL(code, ...)                                                                      \
    (berth_status_fail(BERTH_##code, __FILE__, __LINE__, __VA_ARGS__), BERTH_##code)

// Returns from the calling function with the status of `call` unless that is BERTH_OK.
#define BERTH_TRY(call)                                                                            \
    do {                                                                                           \
        const berth_status berth_try_status = (call);                                              \
        if (berth_try_status != BERTH_OK) {                                                        \
            return berth_try_status;                                                               \
        }                                                                                          \
    } while (0)

// The same, and adds what the caller was doing: BERTH_TRY_NOTE(load(path), "loading %s", path);
#define BERTH_TRY_NOTE(call, ...)                                                                  \
    do {                                                                                           \
        const berth_status berth_try_status = (call);                                              \
        if (berth_try_status != BERTH_OK) {                                                        \
            berth_status_note(__FILE__, __LINE__, __VA_ARGS__);                                    \
            return berth_try_status;                                                               \
        }                                                                                          \
    } while (0)

// One line of a report. Frame 0 is the failure itself, later ones are notes, innermost first.
typedef struct berth_status_frame {
    const char *file; // borrowed for ever: a __FILE__ literal
    int32_t line;
    uint32_t text_offset; // into the report's text; the text there ends with NUL
} berth_status_frame;

// A whole report as plain data, so that a host can keep a plugin's reason in a record and go on.
// A zeroed one is empty. More notes than frames are dropped, longer text is cut and ends with "…".
typedef struct berth_status_report {
    berth_status code; // BERTH_OK when empty
    uint32_t frame_count;
    uint32_t text_bytes;
    berth_status_frame frames[BERTH_STATUS_FRAMES];
    char text[BERTH_STATUS_TEXT_BYTES];
} berth_status_report;

// Replaces this thread's report and returns `code`, which must not be BERTH_OK. The arguments may
// point into the text of the report that is being replaced.
berth_status berth_status_fail(berth_status code, const char *file, int line, const char *format,
                               ...) BERTH_PRINTF(4, 5);
// The same for a failure in a text that somebody wrote: the report reads "where: …", where being
// "config.json: eps" or "a.yaml:3:1: id".
berth_status berth_status_fail_in(berth_status code, const char *where, const char *format,
                                  va_list arguments);
// Adds context to this thread's report; does nothing when there is none.
void berth_status_note(const char *file, int line, const char *format, ...) BERTH_PRINTF(3, 4);

// The code of this thread's report, BERTH_OK when it is empty.
berth_status berth_status_code(void);
// How many reports this thread has begun: tells whether a call made one or found an older one.
uint64_t berth_status_serial(void);
// Writes the report as one line for users, without source positions: the failure first, then its
// notes, "no kernel for op 'rope' on cuda (while building qwen3; while loading /models/q)". Control
// characters become blanks, a line too long for `size` is cut. Always ends with NUL when size > 0;
// returns the bytes written without it.
size_t berth_status_text(char *buffer, size_t size);
// The same line, borrowed until this thread's next berth_status_message; "" when there is no
// report.
const char *berth_status_message(void);
// Writes one line per frame with source positions, for log level debug:
// "file:line: text\nwhile file:line: note". Returns the bytes written as above.
size_t berth_status_trace(char *buffer, size_t size);
void berth_status_clear(void);

// Moves this thread's report out and leaves it empty.
void berth_status_take(berth_status_report *out_report);
// Makes `report` this thread's report and returns its code.
berth_status berth_status_restore(const berth_status_report *report);
// berth_status_text for a report that was taken.
size_t berth_status_report_text(const berth_status_report *report, char *buffer, size_t size);

// "NOT_FOUND"; "INTERNAL" for a number that is none of the codes. Borrowed for ever.
const char *berth_status_name(berth_status code);

#endif
