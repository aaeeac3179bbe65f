// SPDX-License-Identifier: Apache-2.0
// A platform whose register_ops overrides an op that nobody has.
#include "../fake_platform.h"

static fake_state state;

static berth_status forward(void *self, const berth_op_args *args) {
    (void)self, (void)args;
    return BERTH_OK;
}

static const char *const device_types[] = {"unknown-op"};
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

static berth_status register_platform(const berth_host *host, berth_registrar *registrar) {
    static const berth_platform platform = {
        FAKE_REQUIRED("unknown-op", BERTH_PLATFORM_OOT),
        .register_ops = register_ops,
    };
    return fake_register(host, registrar, &platform, &state);
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "unknown-op",
    .register_plugin = register_platform,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "unknown-op", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
