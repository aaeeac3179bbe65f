// SPDX-License-Identifier: Apache-2.0
// What a device may do without this thread: copies that are only queued, from memory that it
// reaches directly, and work that is recorded once and queued again and again. Where a platform has
// no such slot, memory is ordinary and copies are complete; recording has to be asked for.
#include "platform/runtime.h"

#include "base/memory.h"

#define HOST_ALIGNMENT 64

// ---- host memory --------------------------------------------------------------------------------

static bool has_pinned(const berth_runtime *runtime) {
    return runtime->platform != NULL && runtime->platform->device.allocate_host != NULL;
}

berth_status berth_runtime_alloc_host(berth_runtime *runtime, uint64_t bytes, void **out_memory) {
    *out_memory = NULL;
    if (!has_pinned(runtime)) {
        *out_memory = bytes < SIZE_MAX / 2 ? berth_alloc_aligned(HOST_ALIGNMENT, bytes) : NULL;
    } else {
        berth_runtime_enter(runtime, "allocate_host");
        BERTH_TRY(berth_plugin_leave(runtime->platform->device.allocate_host(
            berth_runtime_self(runtime), runtime->device.index, bytes, out_memory)));
    }
    return *out_memory != NULL ? BERTH_OK
                               : BERTH_FAIL(OUT_OF_MEMORY, "no host memory for %llu bytes",
                                            (unsigned long long)bytes);
}

void berth_runtime_free_host(berth_runtime *runtime, void *memory) {
    if (memory == NULL || !has_pinned(runtime)) {
        berth_free(memory);
        return;
    }
    berth_runtime_enter(runtime, "release_host");
    runtime->platform->device.release_host(berth_runtime_self(runtime), runtime->device.index,
                                           memory);
    berth_runtime_leave();
}

// ---- queued copies ------------------------------------------------------------------------------

berth_status berth_runtime_queue(berth_runtime *runtime, berth_buffer to, uint64_t offset,
                                 const void *from, uint64_t bytes) {
    const bool is_queued = !runtime->is_host && runtime->platform->device.queue_to_device != NULL;
    if (!is_queued || bytes == 0 || offset > to.bytes || bytes > to.bytes - offset) {
        return berth_runtime_upload(runtime, to, offset, from, bytes);
    }
    const berth_copy copy = {
        .size = sizeof(copy),
        .destination = to.base,
        .destination_offset = offset,
        .source = from,
        .bytes = bytes,
    };
    ++runtime->counters.to_device;
    ++runtime->counters.queued;
    berth_runtime_enter(runtime, "queue_to_device");
    return berth_plugin_leave(runtime->platform->device.queue_to_device(
        berth_runtime_self(runtime), runtime->device.index, &copy));
}

// ---- recordings ---------------------------------------------------------------------------------

bool berth_runtime_records(const berth_runtime *runtime) {
    return runtime->platform != NULL &&
           (runtime->platform->capabilities.flags & BERTH_CAPABILITY_GRAPH_CAPTURE) != 0;
}

berth_status berth_runtime_record_begin(berth_runtime *runtime) {
    berth_runtime_enter(runtime, "capture_begin");
    return berth_plugin_leave(runtime->platform->device.capture_begin(berth_runtime_self(runtime),
                                                                      runtime->device.index));
}

berth_status berth_runtime_record_end(berth_runtime *runtime, void **out_graph) {
    *out_graph = NULL;
    berth_runtime_enter(runtime, "capture_end");
    BERTH_TRY(berth_plugin_leave(runtime->platform->device.capture_end(
        berth_runtime_self(runtime), runtime->device.index, out_graph)));
    if (*out_graph == NULL) {
        return BERTH_FAIL(INTERNAL, "capture_end of platform '%s' succeeded without a graph",
                          runtime->device.platform);
    }
    ++runtime->counters.captures;
    return BERTH_OK;
}

berth_status berth_runtime_replay(berth_runtime *runtime, void *graph) {
    ++runtime->counters.replays;
    berth_runtime_enter(runtime, "replay");
    return berth_plugin_leave(runtime->platform->device.replay(berth_runtime_self(runtime),
                                                               runtime->device.index, graph));
}

void berth_runtime_free_graph(berth_runtime *runtime, void *graph) {
    if (graph != NULL) {
        berth_runtime_enter(runtime, "release_graph");
        runtime->platform->device.release_graph(berth_runtime_self(runtime), runtime->device.index,
                                                graph);
        berth_runtime_leave();
    }
}
