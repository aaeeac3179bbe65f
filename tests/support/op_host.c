// SPDX-License-Identifier: Apache-2.0
// A host for kernels alone, and the kernels of platform-cpu: its library is opened and asked to
// register as any host would do it, once for each instruction set, with a registrar that only
// remembers implementations.
#include "support/op_case.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth/plugin.h>

#include <cpu/cpu.h>

#include "base/array.h"
#include "support/test.h"

#define MAX_KERNELS 256

extern const berth_op *const berth_native_ops[]; // ends with NULL

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

const berth_op *op_find(const char *name) {
    const berth_op *const *op = berth_native_ops;
    while (*op != NULL && strcmp((*op)->name, name) != 0) {
        ++op;
    }
    return *op;
}

// ---- kernels ------------------------------------------------------------------------------------

// Of one instruction set.
typedef struct kernels {
    const berth_op_impl *rows[MAX_KERNELS];
    size_t count;
    const berth_platform *platform;
    berth_device device;
} kernels;

static kernels sets[3]; // those that the machine has
static size_t set_count;
static kernels *at_hand = sets;
static bool is_tried;

static berth_status add_platform(berth_registrar *registrar, const berth_platform *platform,
                                 void *self) {
    kernels *set = registrar->context;
    set->platform = platform;
    set->device = (berth_device){
        .size = sizeof set->device,
        .platform = platform->name,
        .device_type = platform->device_type,
        .self = self,
    };
    return BERTH_OK;
}

static berth_status add_op_impl(berth_registrar *registrar, const berth_op_impl *impl,
                                uint64_t flags) {
    kernels *set = registrar->context;
    (void)flags;
    if (set->count == MAX_KERNELS) {
        return BERTH_OUT_OF_MEMORY;
    }
    set->rows[set->count++] = impl;
    return BERTH_OK;
}

static void destroy_platforms(void) {
    for (size_t i = 0; i < set_count; ++i) {
        sets[i].platform->device->close(sets[i].device.self, 0);
        sets[i].platform->destroy(sets[i].device.self);
    }
}

static void open_set(const berth_plugin *plugin, const char *name) {
    kernels *set = &sets[set_count];
    berth_registrar registrar = {
        .size = sizeof registrar,
        .context = set,
        .add_platform = add_platform,
        .add_op_impl = add_op_impl,
    };
    (void)setenv("BERTH_CPU_ISA", name, 1);
    berth_status status = plugin->entry_points[0]->register_plugin(op_host(), &registrar);
    if (status == BERTH_DECLINED) {
        return;
    }
    status = status == BERTH_OK ? set->platform->register_ops(set->device.self, NULL, &registrar)
                                : status;
    if (status != BERTH_OK || set->platform->device->open(set->device.self, 0) != BERTH_OK) {
        (void)fprintf(stderr, "platform-cpu does not register: %s\n", last_text);
        abort();
    }
    ++set_count;
}

// The library stays open until the process ends.
static void open_kernels(void) {
    static const char *const names[] = {"avx512", "avx2", "portable"};
    is_tried = true;
    void *library = dlopen(TEST_BUILD "/plugins/libberth-platform-cpu.so", RTLD_NOW | RTLD_LOCAL);
    const berth_plugin *plugin = library == NULL ? NULL : dlsym(library, "berth_plugin_v1");
    for (size_t i = 0; plugin != NULL && i < BERTH_COUNT(names); ++i) {
        open_set(plugin, names[i]);
    }
    (void)unsetenv("BERTH_CPU_ISA");
    (void)atexit(destroy_platforms);
}

size_t op_kernel_sets(void) {
    if (!is_tried) {
        open_kernels();
    }
    return set_count;
}

bool op_kernels_are_built(void) {
    return op_kernel_sets() > 0;
}

void op_kernel_use(size_t set) {
    at_hand = &sets[set];
}

void op_kernel_threads(int64_t threads) {
    berth_cpu *cpu = at_hand->device.self;
    at_hand->platform->device->close(cpu, 0);
    cpu->threads = threads;
    CHECK_OK(at_hand->platform->device->open(cpu, 0));
}

void op_kernel_products(void (*check)(void)) {
    static const struct {
        int dot;
        int matrices;
    } wins[] = {
        {-1, -1},
        {1,  -1},
        {1,  1 },
    };
    if (!op_kernels_are_built()) {
        SKIP("platform-cpu is not built");
    }
    op_kernel_use(0);
    berth_cpu *cpu = at_hand->device.self;
    const berth_cpu measured = *cpu;
    for (size_t i = 0; i < BERTH_COUNT(wins); ++i) {
        cpu->bf16_dot_wins = wins[i].dot;
        cpu->matrices_win = wins[i].matrices;
        check();
    }
    *cpu = measured;
}

const berth_op_impl *op_kernel_find(const char *op) {
    for (size_t i = 0; op_kernels_are_built() && i < at_hand->count; ++i) {
        if (strcmp(at_hand->rows[i]->op, op) == 0) {
            return at_hand->rows[i];
        }
    }
    return NULL;
}

const berth_device *op_kernel_device(void) {
    return &at_hand->device;
}
