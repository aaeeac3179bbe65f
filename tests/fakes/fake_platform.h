// SPDX-License-Identifier: Apache-2.0
// Platforms for tests, one line each: memory behind handles, counters that a test reads through the
// platform's `self`, failures that a test asks for. Every library that includes this has its own.
#ifndef TEST_FAKE_PLATFORM_H
#define TEST_FAKE_PLATFORM_H

#include <stdio.h>
#include <string.h>

#include <berth/plugin.h>

// The `self` of every fake, shared with the tests.
typedef struct fake_state {
    const berth_host *host;
    uint64_t registered;  // calls of its entry point since the library's last shutdown
    uint64_t live_bytes;  // allocated and not released
    uint64_t limit_bytes; // of one allocation, 0: none
    berth_status answer;  // what the slots that can fail return
    char calls[512];      // "open allocate …"
} fake_state;

// What a base points to: never the data itself.
typedef struct fake_block {
    uint64_t bytes;
    unsigned char *data;
} fake_block;

static inline void fake_note(void *self, const char *slot) {
    fake_state *state = self;
    const size_t used = strlen(state->calls);
    (void)snprintf(state->calls + used, sizeof(state->calls) - used, "%s%s", used == 0 ? "" : " ",
                   slot);
}

// Notes the call and answers as the test wants.
static inline berth_status fake_answer(void *self, const char *slot) {
    fake_state *state = self;
    fake_note(self, slot);
    return state->answer == BERTH_OK
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(state->host, state->answer, "%s says no", slot);
}

static inline berth_status fake_allocate(void *self, uint64_t device, uint64_t bytes,
                                         void **out_base) {
    fake_state *state = self;
    (void)device;
    fake_note(self, "allocate");
    if (state->limit_bytes != 0 && bytes > state->limit_bytes) {
        return BERTH_PLUGIN_FAIL(state->host, BERTH_OUT_OF_MEMORY, "the fake is full");
    }
    fake_block *block = state->host->alloc(state->host, sizeof(*block), 0);
    block->bytes = bytes;
    block->data = state->host->alloc(state->host, bytes, 0);
    state->live_bytes += bytes;
    *out_base = block;
    return BERTH_OK;
}

static inline void fake_release(void *self, uint64_t device, void *base) {
    fake_state *state = self;
    fake_block *block = base;
    (void)device;
    fake_note(self, "release");
    if (block != NULL) {
        state->live_bytes -= block->bytes;
        state->host->free(state->host, block->data);
        state->host->free(state->host, block);
    }
}

static inline berth_status fake_upload(void *self, uint64_t device, const berth_copy *copy) {
    const fake_block *to = copy->destination;
    (void)device;
    memcpy(to->data + copy->destination_offset,
           (const unsigned char *)copy->source + copy->source_offset, copy->bytes);
    return fake_answer(self, "copy_to_device");
}

static inline berth_status fake_download(void *self, uint64_t device, const berth_copy *copy) {
    const fake_block *from = copy->source;
    (void)device;
    memcpy((unsigned char *)copy->destination + copy->destination_offset,
           from->data + copy->source_offset, copy->bytes);
    return fake_answer(self, "copy_to_host");
}

static inline berth_status fake_synchronize(void *self, uint64_t device) {
    (void)device;
    return fake_answer(self, "synchronize");
}

static inline berth_status fake_count(void *self, uint64_t *out_count) {
    (void)self;
    *out_count = 2;
    return BERTH_OK;
}

static inline berth_status fake_info(void *self, uint64_t device, berth_device_info *out) {
    (void)self;
    out->name = device == 0 ? "Fake 0" : "Fake 1";
    out->memory_bytes = 1000;
    out->compute_units = 4;
    return BERTH_OK;
}

static const berth_dtype fake_dtypes[] = {BERTH_DTYPE_F32};

static const berth_capabilities fake_capabilities = {
    .size = sizeof(berth_capabilities),
    .dtypes = fake_dtypes,
    .dtype_count = 1,
    .memory_type = BERTH_MEMORY_EXTENSION,
    .alignment_bytes = 256,
};

// The five required slots.
static const berth_device_api fake_device = {
    .size = sizeof(berth_device_api),
    .allocate = fake_allocate,
    .release = fake_release,
    .copy_to_device = fake_upload,
    .copy_to_host = fake_download,
    .synchronize = fake_synchronize,
};

static inline berth_status fake_register(const berth_host *host, berth_registrar *registrar,
                                         const berth_platform *platform, fake_state *state) {
    state->host = host;
    ++state->registered;
    return registrar->add_platform(registrar, platform, state);
}

// Members of a descriptor with what is required only.
#define FAKE_REQUIRED(platform_name, platform_kind)                                                \
    .size = sizeof(berth_platform), .name = (platform_name), .vendor = "Fakes",                    \
    .kind = (platform_kind), .device_type = (platform_name), .device_name = "Fake",                \
    .capabilities = &fake_capabilities, .device = &fake_device, .device_count = fake_count,        \
    .device_info = fake_info

// Defines `state_<id>`, and the entry point `point_<id>` of a platform that is always there.
#define FAKE_PLATFORM(id, platform_name, platform_kind)                                            \
    static fake_state state_##id;                                                                  \
    static berth_status register_##id(const berth_host *host, berth_registrar *registrar) {        \
        static const berth_platform platform = {FAKE_REQUIRED(platform_name, platform_kind)};      \
        return fake_register(host, registrar, &platform, &state_##id);                             \
    }                                                                                              \
    FAKE_ENTRY(id, platform_name)

#define FAKE_ENTRY(id, platform_name)                                                              \
    static const berth_entry_point point_##id = {                                                  \
        .size = sizeof(berth_entry_point),                                                         \
        .group = BERTH_GROUP_PLATFORM,                                                             \
        .name = (platform_name),                                                                   \
        .register_plugin = register_##id,                                                          \
    };

#endif
