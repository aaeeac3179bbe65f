// SPDX-License-Identifier: Apache-2.0
// gemma_rms_norm: x / sqrt(mean(x²) + eps) · (1 + weight); x + residual in x's place, kept in
// float32 for the norm and written rounded.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = 2, .weight = 1, .bias = -1, .sum = 1};

BERTH_INLINE berth_vec take(const berth_norm_row *row, berth_dtype dtype, int64_t first) {
    const berth_vec x = berth_norm_x(row, dtype, first);
    if (!row->gate) {
        return x;
    }
    return x + berth_norm_gate(row, dtype, first);
}

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, int64_t first,
                            berth_vec normal) {
    (void)dtype;
    return normal * (berth_vec_of(1) + berth_norm_weight(row, first));
}

BERTH_INLINE void one(const berth_norm_row *row, berth_sweep_kind as) {
    berth_norm_columns(row, as, take, give, (berth_norm_slice){0, {.end = row->hidden}});
    for (int64_t first = 0; row->sum && first < row->hidden; first += BERTH_LANES) {
        const berth_vec sum = take(row, as.dtype, first);
        if (as.is_past && first + BERTH_LANES <= row->hidden) {
            berth_vec_pass_as(row->sum, as.dtype, first, sum);
        } else {
            berth_vec_store_some(row->sum, as.dtype, first, row->hidden, sum);
        }
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
