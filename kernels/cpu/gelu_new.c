// SPDX-License-Identifier: Apache-2.0
// gelu_new: gelu_tanh, with one rounding.
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)self;
    (void)dtype;
    (void)unused;
    return berth_vec_gelu_tanh(x);
}

BERTH_SWEEP(unary)

const berth_op_impl berth_kernel_gelu_new = {
    BERTH_ACTIVATION_KERNEL("gelu_new", berth_activation_create),
};
