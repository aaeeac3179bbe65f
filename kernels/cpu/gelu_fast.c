// SPDX-License-Identifier: Apache-2.0
// gelu_fast: gelu_tanh, with one rounding.
#include <cpu/elementwise.h>

BERTH_SWEEP(unary, berth_formula_gelu_tanh)

const berth_op_impl berth_kernel_gelu_fast = {
    BERTH_ACTIVATION_KERNEL("gelu_fast", berth_activation_create),
    .revision = 1,
};
