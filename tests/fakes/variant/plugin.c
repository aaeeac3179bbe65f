// SPDX-License-Identifier: Apache-2.0
// The second best variant of a platform: taken when the best cannot be loaded.
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

static const berth_platform platform = {
    .size = sizeof(berth_platform),
    .name = "variant",
    .vendor = "berth tests",
    .kind = BERTH_PLATFORM_OOT,
    .device_type = "fake",
    .device_name = "a device that is not there",
    .capabilities = &capabilities,
    .device = &device,
    .device_count = device_count,
    .device_info = device_info,
};

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_platform(registrar, &platform, 0);
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "variant",
    .register_plugin = register_plugin,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "variant", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
