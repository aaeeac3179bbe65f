// SPDX-License-Identifier: Apache-2.0
// Its entry point counts its calls: a second one in the same process fails.
#include <berth/plugin.h>

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    static int calls;
    if (++calls > 1) {
        return BERTH_PLUGIN_FAIL(host, BERTH_INTERNAL, "register is called %d times", calls);
    }
    (void)registrar;
    return BERTH_OK;
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "once",
    .register_plugin = register_plugin,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "once", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
