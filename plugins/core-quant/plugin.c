// SPDX-License-Identifier: Apache-2.0
// core-quant: the quantization schemes of this folder, one a file.
#include <berth/plugin.h>

extern const berth_quant_config *const berth_core_quant[]; // generated from the names of the files
extern const size_t berth_core_quant_count;

static berth_status register_schemes(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < berth_core_quant_count && status == BERTH_OK; ++i) {
        status = registrar->add_quant_config(registrar, berth_core_quant[i], 0);
    }
    return status;
}

static const berth_entry_point schemes = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "core-quant",
    .register_plugin = register_schemes,
};

static const berth_entry_point *const entry_points[] = {&schemes};

BERTH_PLUGIN_DEFINE(.id = "core-quant", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
