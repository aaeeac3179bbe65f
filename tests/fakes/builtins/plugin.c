// SPDX-License-Identifier: Apache-2.0
// Platforms that a test takes for the host's own: a CPU and two accelerators. Two more names that
// the other library has too.
#include "../fake_platform.h"

FAKE_PLATFORM(cuda, "cuda", BERTH_PLATFORM_CUDA)
FAKE_PLATFORM(xpu, "xpu", BERTH_PLATFORM_XPU)
FAKE_PLATFORM(alpha, "alpha", BERTH_PLATFORM_OOT)
FAKE_PLATFORM(gamma, "gamma", BERTH_PLATFORM_OOT)

// ---- a CPU: its bases are addresses -------------------------------------------------------------

static fake_state state_cpu;

static berth_status cpu_allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    const fake_state *state = self;
    (void)device;
    *out_base = state->host->alloc(state->host, bytes, 0);
    return *out_base == NULL ? BERTH_OUT_OF_MEMORY : BERTH_OK;
}

static void cpu_release(void *self, uint64_t device, void *base) {
    const fake_state *state = self;
    (void)device;
    state->host->free(state->host, base);
}

static berth_status cpu_copy(void *self, uint64_t device, const berth_copy *copy) {
    const fake_state *state = self;
    (void)device;
    (void)copy;
    return BERTH_PLUGIN_FAIL(state->host, BERTH_INTERNAL, "the host copies its own memory");
}

static const berth_capabilities cpu_capabilities = {
    .size = sizeof(berth_capabilities),
    .flags = BERTH_CAPABILITY_HOST_MEMORY,
    .dtypes = fake_dtypes,
    .dtype_count = 1,
    .memory_type = BERTH_MEMORY_HOST,
};

static const berth_device_api cpu_device = {
    .size = sizeof(berth_device_api),
    .allocate = cpu_allocate,
    .release = cpu_release,
    .copy_to_device = cpu_copy,
    .copy_to_host = cpu_copy,
    .synchronize = fake_synchronize,
};

static const berth_platform cpu = {
    .size = sizeof(berth_platform),
    .name = "cpu",
    .vendor = "Fakes",
    .kind = BERTH_PLATFORM_CPU,
    .device_type = "cpu",
    .device_name = "Fake CPU",
    .capabilities = &cpu_capabilities,
    .device = &cpu_device,
    .device_count = fake_count,
    .device_info = fake_info,
};

static berth_status register_cpu(const berth_host *host, berth_registrar *registrar) {
    return fake_register(host, registrar, &cpu, &state_cpu);
}
FAKE_ENTRY(cpu, "cpu")

static void shutdown(void) {
    memset(&state_cpu, 0, sizeof(state_cpu));
    memset(&state_cuda, 0, sizeof(state_cuda));
    memset(&state_xpu, 0, sizeof(state_xpu));
    memset(&state_alpha, 0, sizeof(state_alpha));
    memset(&state_gamma, 0, sizeof(state_gamma));
}

static const berth_entry_point *const points[] = {
    &point_cpu, &point_cuda, &point_xpu, &point_alpha, &point_gamma,
};

BERTH_PLUGIN_DEFINE(.id = "fake-builtins", .version = "1.0.0", .vendor = "Fakes",
                    .entry_points = points, .entry_point_count = sizeof(points) / sizeof(points[0]),
                    .shutdown = shutdown);
