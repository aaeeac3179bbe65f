// SPDX-License-Identifier: Apache-2.0
// A platform whose register_ops overrides an op that nobody has.
#include <berth/plugin.h>

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    (void)self, (void)device, (void)bytes, (void)out_base;
    return BERTH_OUT_OF_MEMORY;
}

static void release(void *self, uint64_t device, void *base) {
    (void)self, (void)device, (void)base;
}

static berth_status copy(void *self, uint64_t device, const berth_copy *what) {
    (void)self, (void)device, (void)what;
    return BERTH_UNSUPPORTED;
}

static berth_status synchronize(void *self, uint64_t device) {
    (void)self, (void)device;
    return BERTH_OK;
}

static berth_status device_count(void *self, uint64_t *out_count) {
    (void)self;
    *out_count = 1;
    return BERTH_OK;
}

static berth_status device_info(void *self, uint64_t device, berth_device_info *out) {
    (void)self, (void)device;
    out->name = "fake";
    out->uuid = "";
    return BERTH_OK;
}

static const berth_device_api device = {
    .size = sizeof(berth_device_api),
    .allocate = allocate,
    .release = release,
    .copy_to_device = copy,
    .copy_to_host = copy,
    .synchronize = synchronize,
};

static const berth_capabilities capabilities = {
    .size = sizeof(berth_capabilities),
    .memory_type = BERTH_MEMORY_EXTENSION,
};

static berth_status forward(void *self, const berth_op_args *args) {
    (void)self, (void)args;
    return BERTH_OK;
}

static const char *const device_types[] = {"fake"};
static const berth_op_impl override = {
    .size = sizeof(berth_op_impl),
    .op = "rms_norn",
    .name = "misspelt",
    .revision = 1,
    .device_types = device_types,
    .device_type_count = 1,
    .forward = forward,
};

static berth_status register_ops(void *self, const berth_config *config,
                                 berth_registrar *registrar) {
    (void)self, (void)config;
    return registrar->add_op_override(registrar, &override, 0);
}

static const berth_platform platform = {
    .size = sizeof(berth_platform),
    .name = "unknown-op",
    .vendor = "berth tests",
    .kind = BERTH_PLATFORM_OOT,
    .device_type = "fake",
    .device_name = "a device that is not there",
    .capabilities = &capabilities,
    .device = &device,
    .device_count = device_count,
    .device_info = device_info,
    .register_ops = register_ops,
};

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_platform(registrar, &platform, 0);
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "unknown-op",
    .register_plugin = register_plugin,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "unknown-op", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
