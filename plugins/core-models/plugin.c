// SPDX-License-Identifier: Apache-2.0
// core-models: the architectures of this folder, one a file.
#include <berth/plugin.h>

extern const berth_model *const berth_core_models[]; // generated from the names of the files
extern const size_t berth_core_models_count;

static berth_status register_models(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < berth_core_models_count && status == BERTH_OK; ++i) {
        status = registrar->add_model(registrar, berth_core_models[i], 0);
    }
    return status;
}

static const berth_entry_point models = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "core-models",
    .register_plugin = register_models,
};

static const berth_entry_point *const entry_points[] = {&models};

BERTH_PLUGIN_DEFINE(.id = "core-models", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
