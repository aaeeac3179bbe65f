// SPDX-License-Identifier: Apache-2.0
// A general plugin whose override of silu_and_mul on the CPU leaves zeros behind: for what must
// notice that a kernel is wrong.
#include <berth/plugin.h>

#include <string.h>

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_tensor *y = args->outputs[0];
    uint64_t elements = 1;
    (void)self;
    for (int32_t i = 0; i < y->ndim; ++i) {
        elements *= (uint64_t)y->shape[i];
    }
    memset((char *)y->data + y->byte_offset, 0, elements * BERTH_DTYPE_BITS(y->dtype) / 8);
    return BERTH_OK;
}

static const char *const device_types[] = {"cpu"};
static const berth_op_impl override = {
    .size = sizeof(berth_op_impl),
    .op = "silu_and_mul",
    .name = "wrong",
    .revision = 1,
    .device_types = device_types,
    .device_type_count = 1,
    .forward = forward,
};

static berth_status register_wrong(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_op_override(registrar, &override, 0);
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "wrong-op",
    .register_plugin = register_wrong,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "wrong-op", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
