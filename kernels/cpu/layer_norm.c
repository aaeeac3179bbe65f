// SPDX-License-Identifier: Apache-2.0
// layer_norm: (x − mean) / sqrt(variance + eps) · weight + bias; with `weight_rows` each of so many
// rows in turn has a weight of its own.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = -1, .weight = 1, .bias = 2, .sum = -1};

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                            berth_vec normal) {
    (void)dtype;
    const berth_vec scaled = normal * berth_norm_weight(row, at);
    if (!row->bias) {
        return scaled;
    }
    return scaled + berth_norm_load(row, row->bias, BERTH_DTYPE_F32, at);
}

BERTH_INLINE void one(const berth_norm_row *row, berth_sweep_kind as) {
    const float mean = berth_norm_mean(row, as.dtype, berth_norm_x);
    berth_norm_columns(row, as, berth_norm_x, give,
                       (berth_norm_slice){
                           .mean = mean, .columns = {0, row->hidden}
    });
}

BERTH_NORM(one, operands)

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
