// SPDX-License-Identifier: Apache-2.0
// minimax_text01_rmsnorm_tp: x / sqrt(mean(x²) + eps) · weight.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = -1, .weight = 1, .bias = -1, .sum = -1};

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                            berth_vec normal) {
    (void)dtype;
    return normal * berth_norm_weight(row, at);
}

BERTH_INLINE void one(const berth_norm_row *row, berth_sweep_kind as) {
    berth_norm_columns(row, as, berth_norm_x, give,
                       (berth_norm_slice){
                           .columns = {0, row->hidden}
    });
}

BERTH_NORM(one, operands)

const berth_op_impl berth_kernel_minimax_text01_rmsnorm_tp = {
    BERTH_NORM_KERNEL("minimax_text01_rmsnorm_tp", berth_norm_create),
    .revision = 1,
};
