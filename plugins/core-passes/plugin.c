// SPDX-License-Identifier: Apache-2.0
// core-passes: the passes of this folder, one a file.
#include <berth/plugin.h>

extern const berth_pass *const berth_core_passes[]; // generated from the names of the files
extern const size_t berth_core_passes_count;

static berth_status register_passes(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < berth_core_passes_count && status == BERTH_OK; ++i) {
        status = registrar->add_pass(registrar, berth_core_passes[i], 0);
    }
    return status;
}

static const berth_entry_point passes = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "core-passes",
    .register_plugin = register_passes,
};

static const berth_entry_point *const entry_points[] = {&passes};

BERTH_PLUGIN_DEFINE(.id = "core-passes", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
