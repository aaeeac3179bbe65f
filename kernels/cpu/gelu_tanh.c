// SPDX-License-Identifier: Apache-2.0
// gelu_tanh: x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))).
#include <cpu/elementwise.h>

BERTH_SWEEP(unary, berth_formula_gelu_tanh)

const berth_op_impl berth_kernel_gelu_tanh = {
    BERTH_ACTIVATION_KERNEL("gelu_tanh", berth_activation_create),
    .revision = 1,
};
