// SPDX-License-Identifier: Apache-2.0
// core-ops: the ops of kernels/native, registered from the table that their folder makes.
#include <berth/plugin.h>

extern const berth_op *const berth_native_ops[]; // generated, ends with NULL

static berth_status register_ops(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    for (const berth_op *const *op = berth_native_ops; *op; ++op) {
        const berth_status status = registrar->add_op(registrar, *op, 0);
        if (status != BERTH_OK) {
            return status;
        }
    }
    return BERTH_OK;
}

static const berth_entry_point entry_point = {
    .size = sizeof entry_point,
    .group = BERTH_GROUP_GENERAL,
    .name = "core-ops",
    .register_plugin = register_ops,
};
static const berth_entry_point *const entry_points[] = {&entry_point};

BERTH_PLUGIN_DEFINE(.id = "core-ops", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
