// SPDX-License-Identifier: Apache-2.0
// Input: level, module, printf text. Output: one line to the sink. Formatted on the stack, so that
// logging allocates nothing and lines of several threads never mix.
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"

#define LINE_BYTES 1024

static const char *const level_names[] = {
    [BERTH_LEVEL_ERROR] = "error", [BERTH_LEVEL_WARN] = "warn",   [BERTH_LEVEL_INFO] = "info",
    [BERTH_LEVEL_DEBUG] = "debug", [BERTH_LEVEL_TRACE] = "trace",
};

// Why writable globals: there is one standard error per process, and so one level and one sink. The
// sink changes at start-up only, before there are other threads.
static _Atomic int enabled_level = BERTH_LEVEL_WARN;
static berth_log_fn sink;
static void *sink_context;

void berth_log_set_level(berth_level level) {
    atomic_store_explicit(&enabled_level, (int)level, memory_order_relaxed);
}

bool berth_log_enabled(berth_level level) {
    return (int)level <= atomic_load_explicit(&enabled_level, memory_order_relaxed);
}

berth_status berth_log_parse_level(berth_str name, berth_level *out_level) {
    for (size_t i = 0; i < BERTH_COUNT(level_names); ++i) {
        if (berth_str_equal_cstr(name, level_names[i])) {
            *out_level = (berth_level)i;
            return BERTH_OK;
        }
    }
    return BERTH_FAIL(INVALID_ARGUMENT,
                      "'" BERTH_STR_FMT "' is no log level; use error, warn, info, debug or trace",
                      BERTH_STR_ARG(name));
}

const char *berth_log_level_name(berth_level level) {
    return (size_t)level < BERTH_COUNT(level_names) ? level_names[level] : "error";
}

void berth_log_set_sink(berth_log_fn new_sink, void *context) {
    sink = new_sink;
    sink_context = context;
}

// The size of what fits, with "…" at the end when something was cut off.
static size_t end_line(char line[LINE_BYTES], size_t size) {
    size_t end = size;
    if (size >= LINE_BYTES) {
        static const char ellipsis[] = "\xe2\x80\xa6";
        end = LINE_BYTES - sizeof(ellipsis);
        while (end > 0 && ((unsigned char)line[end] & 0xc0) == 0x80) {
            --end;
        }
        memcpy(line + end, ellipsis, sizeof(ellipsis));
        end += sizeof(ellipsis) - 1;
    }
    for (size_t i = 0; i < end; ++i) {
        const unsigned char byte = (unsigned char)line[i];
        line[i] = byte < 0x20 || byte == 0x7f ? ' ' : line[i];
    }
    return end;
}

void berth_log(berth_level level, const char *module, const char *format, ...) {
    char line[LINE_BYTES + 1]; // one more for the newline
    const int head =
        snprintf(line, LINE_BYTES, "berth: %s: %s: ", berth_log_level_name(level), module);
    size_t size = head < 0 ? 0 : (size_t)head;
    if (size < LINE_BYTES) {
        va_list arguments;
        va_start(arguments, format);
        const int added = vsnprintf(line + size, LINE_BYTES - size, format, arguments);
        va_end(arguments);
        size += added < 0 ? 0 : (size_t)added;
    }
    size = end_line(line, size);
    if (sink != NULL) {
        sink(sink_context, level, (berth_str){.data = line, .size = size});
        return;
    }
    line[size] = '\n';
    // A log that cannot be written has nowhere to complain.
    const ssize_t ignored = write(STDERR_FILENO, line, size + 1);
    (void)ignored;
}
