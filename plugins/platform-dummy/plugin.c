// SPDX-License-Identifier: Apache-2.0
// platform-dummy: a whole platform in one file, the template that a vendor copies.
//
// It needs no hardware. Its memory is handles, not addresses: a base is a number that no processor can
// dereference, so whoever mixes up host and device memory crashes in CI and not at a customer's. It has
// the five required device calls and overrides three ops; every other op runs the host's native
// reference on copies ("bounced"), which the operator allows with --allow-fallback.
//
// To make it yours: rename the folder and `dummy`, put your runtime's calls into the five functions,
// and replace the forwards by launches of your kernels. Read it from the last lines up.
#include <berth/plugin.h>

#include <math.h>
#include <string.h>

#define MAX_BUFFERS 4096u
#define HANDLE_TAG  (UINT64_C(0xD) << 60) // not a canonical address on any 64-bit machine of today

typedef struct buffer {
    unsigned char *memory; // NULL: free
    uint64_t bytes;
} buffer;

// The platform's self: what your runtime's context would be.
typedef struct dummy {
    const berth_host *host;
    buffer buffers[MAX_BUFFERS];
} dummy;

// ---- device runtime -----------------------------------------------------------------------------

// What a device does when it follows a base and an offset. NULL when the bytes are not inside.
static unsigned char *resolve(const dummy *device, const void *base, uint64_t offset,
                              uint64_t bytes) {
    const uint64_t handle = (uint64_t)(uintptr_t)base;
    const uint64_t index = handle - HANDLE_TAG;
    if (handle < HANDLE_TAG || index >= MAX_BUFFERS || !device->buffers[index].memory) {
        return NULL;
    }
    const buffer *found = &device->buffers[index];
    const int is_inside = offset <= found->bytes && bytes <= found->bytes - offset;
    return is_inside ? found->memory + offset : NULL;
}

static berth_status allocate(void *self, uint64_t device_index, uint64_t bytes, void **out_base) {
    (void)device_index;
    dummy *device = self;
    uint64_t index = 0;
    while (index < MAX_BUFFERS && device->buffers[index].memory) {
        ++index;
    }
    unsigned char *memory =
        index < MAX_BUFFERS ? device->host->alloc(device->host, bytes, 0) : NULL;
    if (!memory) {
        return BERTH_PLUGIN_FAIL(device->host, BERTH_OUT_OF_MEMORY,
                                 "asked for %llu bytes, %llu of %u buffers in use",
                                 (unsigned long long)bytes, (unsigned long long)index, MAX_BUFFERS);
    }
    device->buffers[index] = (buffer){.memory = memory, .bytes = bytes};
    *out_base = (void *)(uintptr_t)(HANDLE_TAG + index);
    return BERTH_OK;
}

static void release(void *self, uint64_t device_index, void *base) {
    (void)device_index;
    dummy *device = self;
    if (resolve(device, base, 0, 0)) {
        buffer *found = &device->buffers[(uint64_t)(uintptr_t)base - HANDLE_TAG];
        device->host->free(device->host, found->memory);
        *found = (buffer){0};
    }
}

static berth_status copy_to_device(void *self, uint64_t device_index, const berth_copy *copy) {
    (void)device_index;
    const dummy *device = self;
    unsigned char *to =
        resolve(device, copy->destination, copy->destination_offset, copy->bytes);
    if (!to) {
        return BERTH_PLUGIN_FAIL(device->host, BERTH_INVALID_ARGUMENT,
                                 "copy to the device: the destination is not %llu bytes of it",
                                 (unsigned long long)copy->bytes);
    }
    memcpy(to, (const char *)copy->source + copy->source_offset, copy->bytes);
    return BERTH_OK;
}

static berth_status copy_to_host(void *self, uint64_t device_index, const berth_copy *copy) {
    (void)device_index;
    const dummy *device = self;
    const unsigned char *from = resolve(device, copy->source, copy->source_offset, copy->bytes);
    if (!from) {
        return BERTH_PLUGIN_FAIL(device->host, BERTH_INVALID_ARGUMENT,
                                 "copy to the host: the source is not %llu bytes of the device",
                                 (unsigned long long)copy->bytes);
    }
    memcpy((char *)copy->destination + copy->destination_offset, from, copy->bytes);
    return BERTH_OK;
}

static berth_status synchronize(void *self, uint64_t device_index) {
    (void)self; // nothing is queued: every call above is complete when it returns
    (void)device_index;
    return BERTH_OK;
}
