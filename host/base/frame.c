// SPDX-License-Identifier: Apache-2.0
// Input: enter and leave of foreign calls, and texts. Output: this thread's stack of frames.
#include "base/frame.h"

#include <assert.h>
#include <string.h>

#define MAX_DEPTH 24

// Why writable: like the report of base/status.c, a failure's text belongs to the thread.
static _Thread_local berth_frame frames[MAX_DEPTH];
static _Thread_local uint32_t depth; // of the calls, may exceed MAX_DEPTH

berth_frame *berth_frame_top(void) {
    if (depth == 0) {
        return NULL;
    }
    return &frames[depth < MAX_DEPTH ? depth - 1 : MAX_DEPTH - 1];
}

berth_frame *berth_frame_push(void) {
    ++depth;
    berth_frame *frame = berth_frame_top();
    frame->owner = NULL;
    frame->slot = NULL;
    frame->serial = berth_status_serial();
    frame->text_bytes = 0;
    return frame;
}

void berth_frame_pop(void) {
    assert(depth > 0);
    --depth;
}

void berth_frame_set_text(berth_frame *frame, const char *text, size_t size) {
    size_t end = size;
    if (end > BERTH_FRAME_TEXT_BYTES - 1) {
        end = BERTH_FRAME_TEXT_BYTES - 1;
        while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) {
            --end;
        }
    }
    if (end > 0) {
        memcpy(frame->text, text, end);
    }
    frame->text[end] = '\0';
    frame->text_bytes = (uint32_t)end;
}
