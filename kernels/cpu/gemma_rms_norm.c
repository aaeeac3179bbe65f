// SPDX-License-Identifier: Apache-2.0
// gemma_rms_norm: x / sqrt(mean(x²) + eps) · (1 + weight); x + residual in x's place, kept in
// float32 for the norm and written rounded.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = 2, .weight = 1, .bias = -1, .sum = 1};

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_norm_kind as, berth_norm_at at,
                            berth_vec normal) {
    return normal * (berth_vec_of(1) + berth_norm_column(row->weight, as, at));
}

static const berth_norm_form alone = {.take = berth_norm_x, .give = give};
static const berth_norm_form with_residual = {
    .take = berth_norm_sum, .give = give, .is_gated = 1, .is_kept = 1, .is_summed = 1};

BERTH_NORM_EITHER(berth_norm_input(in, operands.gate), with_residual, alone, operands)

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_value_type *residual = site->inputs[operands.gate];
    return !residual || residual->dtype == site->inputs[0]->dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "a residual must have the dtype of 'x' here");
}

const berth_op_impl berth_kernel_gemma_rms_norm = {
    BERTH_NORM_KERNEL("gemma_rms_norm", berth_norm_create),
    .revision = 1,
    .supports = supports,
};
