// SPDX-License-Identifier: Apache-2.0
// Input: buffers and offsets. Output: calls of a platform's device table, or plain memory where the
// device's memory is the host's. Nothing above this file knows which of the two it is.
#include "platform/runtime.h"

#include <string.h>
#include <unistd.h>

#include "base/memory.h"

#define DEFAULT_ALIGNMENT 64
#define STAGING_BYTES     (UINT64_C(1) << 20)

// ---- life ---------------------------------------------------------------------------------------

static berth_status check_index(const berth_runtime *runtime) {
    uint64_t count = 0;
    berth_runtime_enter(runtime, "device_count");
    BERTH_TRY(berth_plugin_leave(
        runtime->platform->platform.device_count(berth_runtime_self(runtime), &count)));
    if (runtime->device.index >= count) {
        return BERTH_FAIL(UNAVAILABLE, "platform '%s' has %llu devices, there is no device %llu",
                          runtime->device.platform, (unsigned long long)count,
                          (unsigned long long)runtime->device.index);
    }
    return BERTH_OK;
}

static berth_status bind(berth_runtime *runtime) {
    BERTH_TRY(check_index(runtime));
    if (runtime->platform->device.open != NULL) {
        berth_runtime_enter(runtime, "open");
        BERTH_TRY(berth_plugin_leave(
            runtime->platform->device.open(berth_runtime_self(runtime), runtime->device.index)));
    }
    runtime->is_bound = true;
    return BERTH_OK;
}

static void fill(berth_runtime *runtime, uint64_t index) {
    const berth_platform_entry *platform = runtime->platform;
    runtime->device = (berth_device){
        .size = sizeof(berth_device),
        .platform = platform == NULL ? "host" : platform->platform.name,
        .device_type = platform == NULL ? "host" : platform->platform.device_type,
        .index = index,
        .self = platform == NULL ? NULL : platform->self,
    };
    runtime->is_host =
        platform == NULL || (platform->capabilities.flags & BERTH_CAPABILITY_HOST_MEMORY) != 0;
    runtime->memory_type =
        runtime->is_host ? BERTH_MEMORY_HOST : platform->capabilities.memory_type;
    runtime->alignment = platform == NULL || platform->capabilities.alignment_bytes == 0
                             ? DEFAULT_ALIGNMENT
                             : platform->capabilities.alignment_bytes;
}

berth_status berth_runtime_open(const berth_platform_entry *platform, uint64_t device,
                                const berth_host *host, berth_runtime **out_runtime) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create(sizeof(berth_runtime), 65536, &arena));
    berth_runtime *runtime = BERTH_ARENA_NEW(arena, berth_runtime);
    if (runtime == NULL) {
        const berth_status status = berth_arena_exhausted(arena, "a device runtime");
        berth_arena_destroy(arena);
        return status;
    }
    runtime->arena = arena;
    runtime->platform = platform;
    runtime->host = host;
    fill(runtime, device);
    const berth_status status = platform == NULL ? BERTH_OK : bind(runtime);
    if (status != BERTH_OK) {
        berth_runtime_close(runtime);
        return status;
    }
    *out_runtime = runtime;
    return BERTH_OK;
}

void berth_runtime_close(berth_runtime *runtime) {
    if (runtime == NULL) {
        return;
    }
    runtime->host->free(runtime->host, runtime->staging);
    if (runtime->is_bound && runtime->platform->device.close != NULL) {
        berth_runtime_enter(runtime, "close");
        runtime->platform->device.close(berth_runtime_self(runtime), runtime->device.index);
        berth_runtime_leave();
    }
    berth_arena_destroy(runtime->arena);
}

// ---- what it is ---------------------------------------------------------------------------------

bool berth_runtime_is_host(const berth_runtime *runtime) {
    return runtime->is_host;
}

int32_t berth_runtime_memory_type(const berth_runtime *runtime) {
    return runtime->memory_type;
}

uint64_t berth_runtime_alignment(const berth_runtime *runtime) {
    return runtime->alignment;
}

const berth_device *berth_runtime_device(const berth_runtime *runtime) {
    return &runtime->device;
}

const berth_platform_entry *berth_runtime_platform(const berth_runtime *runtime) {
    return runtime->platform;
}

const berth_runtime_counters *berth_runtime_counted(const berth_runtime *runtime) {
    return &runtime->counters;
}

uint64_t berth_runtime_waited(const berth_runtime *runtime) {
    const berth_runtime_counters *counters = &runtime->counters;
    return counters->waits + counters->to_host + counters->on_device + counters->to_device -
           counters->queued;
}

berth_status berth_runtime_info(const berth_runtime *runtime, berth_device_info *out) {
    *out = (berth_device_info){.size = sizeof(*out), .name = "host", .uuid = ""};
    if (runtime->platform == NULL) {
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        out->memory_bytes = berth_memory_total();
        out->compute_units = cores > 0 ? (uint64_t)cores : 1;
        return BERTH_OK;
    }
    berth_runtime_enter(runtime, "device_info");
    BERTH_TRY(berth_plugin_leave(runtime->platform->platform.device_info(
        berth_runtime_self(runtime), runtime->device.index, out)));
    out->name = out->name == NULL ? "" : out->name;
    out->uuid = out->uuid == NULL ? "" : out->uuid;
    return BERTH_OK;
}

berth_status berth_runtime_memory(const berth_runtime *runtime, uint64_t *out_free,
                                  uint64_t *out_total) {
    if (runtime->platform == NULL) {
        *out_free = berth_memory_available();
        *out_total = berth_memory_total();
        return BERTH_OK;
    }
    if (runtime->platform->device.memory_info != NULL) {
        berth_runtime_enter(runtime, "memory_info");
        return berth_plugin_leave(runtime->platform->device.memory_info(
            berth_runtime_self(runtime), runtime->device.index, out_free, out_total));
    }
    berth_device_info info;
    BERTH_TRY(berth_runtime_info(runtime, &info));
    *out_free = info.memory_bytes;
    *out_total = info.memory_bytes;
    return BERTH_OK;
}

// ---- memory -------------------------------------------------------------------------------------

// What was asked, what is free, which setting to change, and what the platform said.
static berth_status out_of_memory(const berth_runtime *runtime, uint64_t bytes) {
    char said[512] = "";
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    if (runtime->platform != NULL) {
        (void)berth_status_text(said, sizeof(said));
    }
    if (berth_runtime_memory(runtime, &free_bytes, &total) != BERTH_OK) {
        berth_status_clear();
    }
    return BERTH_FAIL(OUT_OF_MEMORY,
                      "device %llu of platform '%s' has no room for %llu bytes, %llu of %llu are "
                      "free: lower --kv-cache-blocks, --max-num-batched-tokens or --max-model-len, "
                      "or take a smaller model%s%s",
                      (unsigned long long)runtime->device.index, runtime->device.platform,
                      (unsigned long long)bytes, (unsigned long long)free_bytes,
                      (unsigned long long)total, said[0] == '\0' ? "" : "; ", said);
}

berth_status berth_runtime_alloc(berth_runtime *runtime, uint64_t bytes, berth_buffer *out) {
    *out = (berth_buffer){0};
    if (bytes == 0) {
        return BERTH_OK;
    }
    void *base = NULL;
    if (runtime->platform == NULL) {
        base = runtime->host->alloc(runtime->host, bytes, runtime->alignment);
        if (base == NULL) {
            return out_of_memory(runtime, bytes);
        }
    } else {
        berth_runtime_enter(runtime, "allocate");
        const berth_status status = berth_plugin_leave(runtime->platform->device.allocate(
            berth_runtime_self(runtime), runtime->device.index, bytes, &base));
        if (status == BERTH_OUT_OF_MEMORY) {
            return out_of_memory(runtime, bytes);
        }
        BERTH_TRY(status);
    }
    if (base == NULL) {
        return BERTH_FAIL(INTERNAL, "allocate of platform '%s' succeeded without memory",
                          runtime->device.platform);
    }
    *out = (berth_buffer){.base = base, .bytes = bytes};
    berth_runtime_counters *counters = &runtime->counters;
    counters->held += bytes;
    counters->peak = counters->held > counters->peak ? counters->held : counters->peak;
    return BERTH_OK;
}

void berth_runtime_free(berth_runtime *runtime, berth_buffer *buffer) {
    if (buffer->base != NULL && runtime->platform == NULL) {
        runtime->host->free(runtime->host, buffer->base);
    } else if (buffer->base != NULL) {
        berth_runtime_enter(runtime, "release");
        runtime->platform->device.release(berth_runtime_self(runtime), runtime->device.index,
                                          buffer->base);
        berth_runtime_leave();
    }
    runtime->counters.held -= buffer->bytes;
    *buffer = (berth_buffer){0};
}

// ---- copies -------------------------------------------------------------------------------------

static berth_status check_range(const berth_runtime *runtime, berth_buffer buffer, uint64_t offset,
                                uint64_t bytes) {
    if (offset <= buffer.bytes && bytes <= buffer.bytes - offset) {
        return BERTH_OK;
    }
    return BERTH_FAIL(INVALID_ARGUMENT,
                      "a copy of %llu bytes at %llu leaves a buffer of %llu bytes on platform '%s'",
                      (unsigned long long)bytes, (unsigned long long)offset,
                      (unsigned long long)buffer.bytes, runtime->device.platform);
}

// Host memory is read and written by this thread, after the work that was queued on it.
static berth_status settle(const berth_runtime *runtime) {
    if (runtime->platform == NULL) {
        return BERTH_OK;
    }
    berth_runtime_enter(runtime, "synchronize");
    return berth_plugin_leave(
        runtime->platform->device.synchronize(berth_runtime_self(runtime), runtime->device.index));
}

berth_status berth_runtime_upload(berth_runtime *runtime, berth_buffer to, uint64_t offset,
                                  const void *from, uint64_t bytes) {
    BERTH_TRY(check_range(runtime, to, offset, bytes));
    if (bytes == 0) {
        return BERTH_OK;
    }
    if (runtime->is_host) {
        BERTH_TRY(settle(runtime));
        memcpy((char *)to.base + offset, from, bytes);
        return BERTH_OK;
    }
    const berth_copy copy = {
        .size = sizeof(copy),
        .destination = to.base,
        .destination_offset = offset,
        .source = from,
        .bytes = bytes,
    };
    ++runtime->counters.to_device;
    berth_runtime_enter(runtime, "copy_to_device");
    return berth_plugin_leave(runtime->platform->device.copy_to_device(
        berth_runtime_self(runtime), runtime->device.index, &copy));
}

berth_status berth_runtime_download(berth_runtime *runtime, void *to, berth_buffer from,
                                    uint64_t offset, uint64_t bytes) {
    BERTH_TRY(check_range(runtime, from, offset, bytes));
    if (bytes == 0) {
        return BERTH_OK;
    }
    if (runtime->is_host) {
        BERTH_TRY(settle(runtime));
        memcpy(to, (const char *)from.base + offset, bytes);
        return BERTH_OK;
    }
    const berth_copy copy = {
        .size = sizeof(copy),
        .destination = to,
        .source = from.base,
        .source_offset = offset,
        .bytes = bytes,
    };
    ++runtime->counters.to_host;
    berth_runtime_enter(runtime, "copy_to_host");
    return berth_plugin_leave(runtime->platform->device.copy_to_host(berth_runtime_self(runtime),
                                                                     runtime->device.index, &copy));
}

// Piece by piece through host memory. Why one megabyte: large enough for a copy's fixed cost to
// vanish, small enough to keep.
static berth_status copy_staged(berth_runtime *runtime, const berth_copy *copy) {
    if (runtime->staging == NULL) {
        runtime->staging = runtime->host->alloc(runtime->host, STAGING_BYTES, 0);
    }
    if (runtime->staging == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no host memory for a staging buffer of %llu bytes",
                          (unsigned long long)STAGING_BYTES);
    }
    const berth_buffer from = {.base = (void *)(uintptr_t)copy->source, .bytes = UINT64_MAX};
    const berth_buffer to = {.base = copy->destination, .bytes = UINT64_MAX};
    for (uint64_t done = 0; done < copy->bytes;) {
        const uint64_t left = copy->bytes - done;
        const uint64_t piece = left < STAGING_BYTES ? left : STAGING_BYTES;
        BERTH_TRY(berth_runtime_download(runtime, runtime->staging, from,
                                         copy->source_offset + done, piece));
        BERTH_TRY(berth_runtime_upload(runtime, to, copy->destination_offset + done,
                                       runtime->staging, piece));
        done += piece;
    }
    return BERTH_OK;
}

berth_status berth_runtime_copy(berth_runtime *runtime, const berth_copy *copy) {
    if (copy->bytes == 0) {
        return BERTH_OK;
    }
    if (runtime->is_host) {
        BERTH_TRY(settle(runtime));
        memcpy((char *)copy->destination + copy->destination_offset,
               (const char *)copy->source + copy->source_offset, copy->bytes);
        return BERTH_OK;
    }
    if (runtime->platform->device.copy_on_device == NULL) {
        return copy_staged(runtime, copy);
    }
    ++runtime->counters.on_device;
    berth_runtime_enter(runtime, "copy_on_device");
    return berth_plugin_leave(runtime->platform->device.copy_on_device(
        berth_runtime_self(runtime), runtime->device.index, copy));
}

berth_status berth_runtime_wait(berth_runtime *runtime) {
    if (runtime->platform == NULL) {
        return BERTH_OK;
    }
    ++runtime->counters.waits;
    return settle(runtime);
}
