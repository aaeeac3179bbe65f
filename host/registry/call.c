// SPDX-License-Identifier: Apache-2.0
// Input: the beginning and the end of a call into a plugin. Output: when it failed, one report: the
// plugin's own words, or what a host service said during the call, or plugin and slot.
#include "base/frame.h"
#include "registry/registry_private.h"

void berth_plugin_enter(const berth_owner *owner, const char *slot) {
    berth_frame *frame = berth_frame_push();
    frame->owner = owner;
    frame->slot = slot;
}

static berth_status report(const berth_frame *frame, berth_status status) {
    const berth_owner *owner = frame->owner;
    const char *id = owner == NULL ? "host" : owner->id;
    if (status < BERTH_OK || status > BERTH_INTERNAL) {
        return BERTH_FAIL(INTERNAL, "%s of plugin '%s' returned %d, which is no status%s%s",
                          frame->slot, id, (int)status, frame->text_bytes > 0 ? ": " : "",
                          frame->text_bytes > 0 ? frame->text : "");
    }
    if (frame->text_bytes > 0) {
        const berth_status code = berth_status_fail(status, __FILE__, __LINE__, "%s", frame->text);
        berth_status_note(__FILE__, __LINE__, "calling %s of plugin '%s'", frame->slot, id);
        return code;
    }
    if (berth_status_code() == status && berth_status_serial() != frame->serial) {
        berth_status_note(__FILE__, __LINE__, "calling %s of plugin '%s'", frame->slot, id);
        return status;
    }
    if (status == BERTH_DECLINED) {
        return BERTH_FAIL(DECLINED, "%s of plugin '%s' declined and gave no reason", frame->slot,
                          id);
    }
    return berth_status_fail(status, __FILE__, __LINE__,
                             "%s of plugin '%s' failed with %s and gave no reason", frame->slot, id,
                             berth_status_name(status));
}

berth_status berth_plugin_leave(berth_status status) {
    const berth_frame *frame = berth_frame_top();
    berth_frame_pop();
    return status == BERTH_OK ? BERTH_OK : report(frame, status);
}
