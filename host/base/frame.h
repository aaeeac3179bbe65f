// SPDX-License-Identifier: Apache-2.0
// Frames of foreign calls: one for each call of a plugin that this thread is inside of, innermost
// last, where the plugin's text of its failure waits until the call returns. Per thread and of
// fixed size, because a failure must be reportable when memory has run out. What the fields mean is
// the registry's business (berth_plugin_enter); this only keeps the stack.
#ifndef BERTH_BASE_FRAME_H
#define BERTH_BASE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define BERTH_FRAME_TEXT_BYTES 512 // with the NUL

typedef struct berth_frame {
    const void *owner;   // borrowed for the call
    const char *slot;    // borrowed for the call
    uint64_t serial;     // berth_status_serial when the call began
    uint32_t text_bytes; // 0: the callee gave no text
    char text[BERTH_FRAME_TEXT_BYTES];
} berth_frame;

// A new innermost frame without a text. Calls nested more than 24 deep share the last one.
berth_frame *berth_frame_push(void);
// The innermost frame, NULL outside of every call.
berth_frame *berth_frame_top(void);
void berth_frame_pop(void);
// Replaces the frame's text; what does not fit is cut, never inside a character.
void berth_frame_set_text(berth_frame *frame, const char *text, size_t size);

#endif
