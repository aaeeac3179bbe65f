// SPDX-License-Identifier: Apache-2.0
// A host for kernels alone, and the kernels of platform-cpu: its library is opened and asked to
// register as any host would do it, with a registrar that only remembers implementations.
#include "support/op_case.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth/plugin.h>

#include "support/test.h"

#define MAX_KERNELS 64

static char last_text[512];

static void host_log(const berth_host *host, uint64_t level, const char *module, const char *text,
                     uint64_t length) {
    (void)host;
    (void)level;
    (void)module;
    (void)text;
    (void)length;
}

static uint64_t host_log_enabled(const berth_host *host, uint64_t level) {
    (void)host;
    (void)level;
    return 0;
}

static void host_fail(const berth_host *host, berth_status status, const char *text,
                      uint64_t length) {
    (void)host;
    (void)status;
    (void)snprintf(last_text, sizeof last_text, "%.*s", (int)length, text);
}

static void *host_alloc(const berth_host *host, uint64_t bytes, uint64_t alignment) {
    (void)host;
    const uint64_t boundary = alignment == 0 ? 64 : alignment;
    const uint64_t rounded = (bytes + boundary) / boundary * boundary;
    void *memory = aligned_alloc(boundary, rounded);
    return memory == NULL ? NULL : memset(memory, 0, rounded);
}

static void host_free(const berth_host *host, void *memory) {
    (void)host;
    free(memory);
}

// The tests run on one thread, so that nothing depends on how busy the machine is.
static berth_status host_config_get_i64(const berth_config *config, const char *path,
                                        int64_t *out) {
    (void)config;
    *out = 1;
    return strcmp(path, "threads") == 0 ? BERTH_OK : BERTH_NOT_FOUND;
}

const berth_host *op_host(void) {
    static const berth_host host = {
        .size = sizeof(berth_host),
        .abi_min = BERTH_ABI(1, 0),
        .abi_max = BERTH_ABI_CURRENT,
        .version = "test",
        .log = host_log,
        .log_enabled = host_log_enabled,
        .fail = host_fail,
        .alloc = host_alloc,
        .free = host_free,
        .config_get_i64 = host_config_get_i64,
    };
    return &host;
}

const char *op_host_text(void) {
    return last_text;
}

// ---- kernels ------------------------------------------------------------------------------------

typedef struct kernels {
    const berth_op_impl *rows[MAX_KERNELS];
    size_t count;
    const berth_platform *platform;
    void *platform_self;
    berth_device device;
    bool is_tried;
} kernels;

static kernels cpu;

static berth_status add_platform(berth_registrar *registrar, const berth_platform *platform,
                                 void *self) {
    (void)registrar;
    cpu.platform = platform;
    cpu.platform_self = self;
    return BERTH_OK;
}

static berth_status add_op_impl(berth_registrar *registrar, const berth_op_impl *impl,
                                uint64_t flags) {
    (void)registrar;
    (void)flags;
    if (cpu.count == MAX_KERNELS) {
        return BERTH_OUT_OF_MEMORY;
    }
    cpu.rows[cpu.count++] = impl;
    return BERTH_OK;
}

static void destroy_platform(void) {
    cpu.platform->destroy(cpu.platform_self);
}

// The library stays open until the process ends: it says itself that it cannot be unloaded.
static void open_kernels(void) {
    berth_registrar registrar = {
        .size = sizeof registrar,
        .add_platform = add_platform,
        .add_op_impl = add_op_impl,
    };
    cpu.is_tried = true;
    void *library = dlopen(TEST_BUILD "/plugins/libberth-platform-cpu.so", RTLD_NOW | RTLD_LOCAL);
    const berth_plugin *plugin = library == NULL ? NULL : dlsym(library, "berth_plugin_v1");
    if (plugin == NULL) {
        return;
    }
    const berth_status status = plugin->entry_points[0]->register_plugin(op_host(), &registrar);
    if (status != BERTH_OK ||
        cpu.platform->register_ops(cpu.platform_self, NULL, &registrar) != BERTH_OK) {
        (void)fprintf(stderr, "platform-cpu does not register: %s\n", last_text);
        abort();
    }
    cpu.device = (berth_device){
        .size = sizeof cpu.device,
        .platform = cpu.platform->name,
        .device_type = cpu.platform->device_type,
        .self = cpu.platform_self,
    };
    (void)atexit(destroy_platform);
}

bool op_kernels_are_built(void) {
    if (!cpu.is_tried) {
        open_kernels();
    }
    return cpu.platform != NULL;
}

const berth_op_impl *op_kernel_find(const char *op) {
    for (size_t i = 0; op_kernels_are_built() && i < cpu.count; ++i) {
        if (strcmp(cpu.rows[i]->op, op) == 0) {
            return cpu.rows[i];
        }
    }
    return NULL;
}

const berth_device *op_kernel_device(void) {
    return &cpu.device;
}
