// SPDX-License-Identifier: Apache-2.0
// Logging: one level, one sink, one line per call, "berth: warn: discovery: no plugin named 'x'".
// Present tense, no newline, values with units. Level error means that a person must act. A
// function that returns a failure does not log it; main and the request boundary do. Plugins log
// through their host table, which ends here.
#ifndef BERTH_BASE_LOG_H
#define BERTH_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef enum berth_level {
    BERTH_LEVEL_ERROR = 0,
    BERTH_LEVEL_WARN = 1,
    BERTH_LEVEL_INFO = 2,
    BERTH_LEVEL_DEBUG = 3,
    BERTH_LEVEL_TRACE = 4,
} berth_level;

// Nothing is formatted unless the level is enabled, but the arguments are evaluated only then, too.
#define BERTH_LOG_AT(level, module, ...)                                                           \
    do {                                                                                           \
        if (berth_log_enabled(level)) {                                                            \
            berth_log(level, module, __VA_ARGS__);                                                 \
        }                                                                                          \
    } while (0)
#define BERTH_ERROR(module, ...) BERTH_LOG_AT(BERTH_LEVEL_ERROR, module, __VA_ARGS__)
#define BERTH_WARN(module, ...)  BERTH_LOG_AT(BERTH_LEVEL_WARN, module, __VA_ARGS__)
#define BERTH_INFO(module, ...)  BERTH_LOG_AT(BERTH_LEVEL_INFO, module, __VA_ARGS__)
#define BERTH_DEBUG(module, ...) BERTH_LOG_AT(BERTH_LEVEL_DEBUG, module, __VA_ARGS__)
#define BERTH_TRACE(module, ...) BERTH_LOG_AT(BERTH_LEVEL_TRACE, module, __VA_ARGS__)

// Receives one whole line without its newline, borrowed for the call; may be called by several
// threads at once and must not log.
typedef void (*berth_log_fn)(void *context, berth_level level, berth_str line);

// The level at start is warn. [any]
void berth_log_set_level(berth_level level);
bool berth_log_enabled(berth_level level);
// "error", "warn", "info", "debug" or "trace"; INVALID_ARGUMENT lists them.
BERTH_MUST_CHECK berth_status berth_log_parse_level(berth_str name, berth_level *out_level);
const char *berth_log_level_name(berth_level level);
// Replaces the sink; NULL brings back standard error, which gets each line in one write. [startup]
void berth_log_set_sink(berth_log_fn sink, void *context);

// Formats and writes, whether enabled or not: use the macros. A line has at most 1,024 bytes and is
// cut with "…"; control characters become blanks. [any]
void berth_log(berth_level level, const char *module, const char *format, ...) BERTH_PRINTF(3, 4);

#endif
