// SPDX-License-Identifier: Apache-2.0
// What rendering one template carries along: memory, limits, the place at hand, where output goes.
// A template is a stranger's program, so every loop over its data spends steps, every nesting takes
// depth, and all memory is of one arena: it ends in a refusal, never in a hang.
#ifndef BERTH_CHAT_MACHINE_H
#define BERTH_CHAT_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

#define BERTH_JINJA_STEPS  ((uint64_t)1 << 25) // a long conversation takes some ten thousand
#define BERTH_JINJA_DEPTH  600 // of nested expressions, statements, calls and values
#define BERTH_JINJA_BYTES  ((size_t)256 << 20) // of all values that one rendering makes
#define BERTH_JINJA_OUTPUT ((size_t)32 << 20)  // of the text, and of any text made on the way

typedef struct berth_jinja_frame berth_jinja_frame;

typedef enum berth_jinja_flow {
    BERTH_JINJA_GO_ON,
    BERTH_JINJA_BREAK,
    BERTH_JINJA_CONTINUE,
} berth_jinja_flow;

typedef struct berth_jinja {
    berth_arena *arena;       // borrowed
    const char *name;         // of the template, for errors
    uint32_t line;            // of the node at hand
    uint32_t depth;           // of nesting
    uint64_t steps;           // left
    berth_text *out;          // where output goes at the moment
    berth_jinja_frame *frame; // the innermost scope
    berth_jinja_flow flow;    // what a break or continue asks of the loop around it
    int64_t now;              // seconds since 1970 for strftime_now
} berth_jinja;

// A failure at the line at hand: "chat_template.jinja:12: …". Why a comma: see BERTH_FAIL.
#define BERTH_JINJA_FAIL(j, code, ...)                                                             \
    (berth_jinja_report(j, BERTH_##code, __VA_ARGS__), BERTH_##code)
void berth_jinja_report(const berth_jinja *j, berth_status code, const char *format, ...)
    BERTH_PRINTF(3, 4);

// Takes `count` steps; OUT_OF_MEMORY when there are none left.
BERTH_MUST_CHECK berth_status berth_jinja_spend(berth_jinja *j, uint64_t count);
// One level deeper; berth_jinja_leave comes after an OK.
BERTH_MUST_CHECK berth_status berth_jinja_enter(berth_jinja *j);
void berth_jinja_leave(berth_jinja *j);
// Zeroed memory of the arena, paid for in steps.
BERTH_MUST_CHECK berth_status berth_jinja_alloc(berth_jinja *j, size_t count, size_t size,
                                                void **out_memory);

#endif
