// SPDX-License-Identifier: Apache-2.0
// Private to platform/: an opened device, and what stands around a call of one of its slots.
#ifndef BERTH_PLATFORM_RUNTIME_H
#define BERTH_PLATFORM_RUNTIME_H

#include "platform/platform.h"

struct berth_runtime {
    berth_arena *arena;                   // holds this struct
    const berth_platform_entry *platform; // NULL: the host itself
    const berth_host *host;
    berth_device device;
    berth_runtime_counters counters;
    void *staging; // for copies on a device that cannot; made at the first one
    uint64_t alignment;
    int32_t memory_type;
    bool is_host;
    bool is_bound; // the platform's open has run
};

static inline void *berth_runtime_self(const berth_runtime *runtime) {
    return runtime->platform->self;
}

static inline void berth_runtime_enter(const berth_runtime *runtime, const char *slot) {
    berth_plugin_enter(runtime->platform->owner, slot);
}

// After a slot that returns nothing.
static inline void berth_runtime_leave(void) {
    if (berth_plugin_leave(BERTH_OK) != BERTH_OK) {
        berth_status_clear();
    }
}

#endif
