// SPDX-License-Identifier: Apache-2.0
// minimax_text01_rmsnorm_tp: x / sqrt(mean(x²) + eps) · weight.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = -1, .weight = 1, .bias = -1, .sum = -1};

static const berth_norm_form form = {.take = berth_norm_x, .give = berth_norm_weigh};

BERTH_NORM(form, operands)

const berth_op_impl berth_kernel_minimax_text01_rmsnorm_tp = {
    BERTH_NORM_KERNEL("minimax_text01_rmsnorm_tp", berth_norm_create),
    .revision = 1,
};
