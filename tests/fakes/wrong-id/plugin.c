// SPDX-License-Identifier: Apache-2.0
// Its manifest says another id.
#include <berth/plugin.h>

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    (void)host, (void)registrar;
    return BERTH_OK;
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "wrong-id",
    .register_plugin = register_plugin,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "other-id", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
