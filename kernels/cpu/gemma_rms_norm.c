// SPDX-License-Identifier: Apache-2.0
// gemma_rms_norm: x / sqrt(mean(x²) + eps) · (1 + weight); x + residual in x's place, kept in
// float32 for the norm and written rounded.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = 2, .weight = 1, .bias = -1, .sum = 1};

BERTH_INLINE berth_vec sum_of(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at) {
    return berth_norm_x(row, dtype, at) + berth_norm_gate(row, dtype, at);
}

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                            berth_vec normal) {
    (void)dtype;
    return normal * (berth_vec_of(1) + berth_norm_weight(row, at));
}

BERTH_INLINE void one(const berth_norm_row *row, berth_sweep_kind as) {
    const berth_norm_slice all = {
        .columns = {0, row->hidden}
    };
    if (row->gate) {
        berth_norm_keep(row, as, sum_of, BERTH_NORM_VALUES);
        berth_norm_columns(row, as, berth_norm_value, give, all);
    } else {
        berth_norm_columns(row, as, berth_norm_x, give, all);
    }
}

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_value_type *residual = site->inputs[operands.gate];
    return !residual || residual->dtype == site->inputs[0]->dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "a residual must have the dtype of 'x' here");
}

BERTH_NORM(one, operands)

const berth_op_impl berth_kernel_gemma_rms_norm = {
    BERTH_NORM_KERNEL("gemma_rms_norm", berth_norm_create),
    .revision = 1,
    .supports = supports,
};
