// SPDX-License-Identifier: Apache-2.0
// A platform without the required slot `release`.
#include "../fake_platform.h"

static fake_state state;

static berth_status register_platform(const berth_host *host, berth_registrar *registrar) {
    berth_device_api device = fake_device;
    device.release = NULL;
    const berth_platform whole = {FAKE_REQUIRED("null-slot", BERTH_PLATFORM_OOT)};
    berth_platform platform = whole;
    platform.device = &device; // the host copies the tables that it is given
    return fake_register(host, registrar, &platform, &state);
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "null-slot",
    .register_plugin = register_platform,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "null-slot", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
