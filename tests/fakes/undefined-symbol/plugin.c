// SPDX-License-Identifier: Apache-2.0
// Needs a function that no library has, so it cannot be loaded. Its score puts it before `variant`.
#include <berth/plugin.h>

extern berth_status berth_fake_that_nobody_has(void);

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    (void)host, (void)registrar;
    return berth_fake_that_nobody_has();
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "variant",
    .register_plugin = register_plugin,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "undefined-symbol", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
