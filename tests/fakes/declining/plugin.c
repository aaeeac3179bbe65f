// SPDX-License-Identifier: Apache-2.0
// A platform whose hardware is absent.
#include <berth/plugin.h>

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    (void)registrar;
    return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED, "no driver %d or later", 550);
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "declining",
    .register_plugin = register_plugin,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "declining", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
