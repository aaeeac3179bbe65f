// SPDX-License-Identifier: Apache-2.0
// layer_norm: (x − mean) / sqrt(variance + eps) · weight + bias; with `weight_rows` each of so many
// rows in turn has a weight of its own.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = -1, .weight = 1, .bias = 2, .sum = -1};

static const berth_norm_form form = {
    .take = berth_norm_x,
    .give = berth_norm_weigh_and_add,
    .is_centred = 1,
};

BERTH_NORM(form, operands)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_norm_create(site, device, out_self);
    const berth_attribute *rows = berth_site_attribute(site, "weight_rows");
    if (status == BERTH_OK && rows && rows->kind == BERTH_ATTRIBUTE_I64) {
        ((berth_norm *)*out_self)->weight_rows = rows->i64;
    }
    return status;
}

const berth_op_impl berth_kernel_layer_norm = {
    BERTH_NORM_KERNEL("layer_norm", create),
    .revision = 2,
};
