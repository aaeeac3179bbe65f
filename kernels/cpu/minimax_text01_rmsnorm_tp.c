// SPDX-License-Identifier: Apache-2.0
// minimax_text01_rmsnorm_tp: x / sqrt(mean(x²) + eps) · weight.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = -1, .weight = 1, .bias = -1, .sum = -1};

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                            berth_vec normal) {
    (void)dtype;
    return normal * berth_norm_weight(row, at);
}

BERTH_NORM(((berth_norm_form){.take = berth_norm_x, .give = give}), operands)

const berth_op_impl berth_kernel_minimax_text01_rmsnorm_tp = {
    BERTH_NORM_KERNEL("minimax_text01_rmsnorm_tp", berth_norm_create),
    .revision = 1,
};
