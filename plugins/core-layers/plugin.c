// SPDX-License-Identifier: Apache-2.0
// core-layers: the layers of this folder, one a file, under vLLM's class names.
#include <berth/plugin.h>

extern const berth_layer *const berth_core_layers[]; // generated from the names of the files
extern const size_t berth_core_layers_count;

static berth_status register_layers(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < berth_core_layers_count && status == BERTH_OK; ++i) {
        status = registrar->add_layer(registrar, berth_core_layers[i], 0);
    }
    return status;
}

static const berth_entry_point layers = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "core-layers",
    .register_plugin = register_layers,
};

static const berth_entry_point *const entry_points[] = {&layers};

BERTH_PLUGIN_DEFINE(.id = "core-layers", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
