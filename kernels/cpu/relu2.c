// SPDX-License-Identifier: Apache-2.0
// relu2: max(x, 0)².
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)self;
    (void)dtype;
    (void)unused;
    const berth_vec positive = berth_vec_max(berth_vec_of(0), x);
    return positive * positive;
}

BERTH_SWEEP(exact_unary, formula)

const berth_op_impl berth_kernel_relu2 = {
    BERTH_ACTIVATION_KERNEL("relu2", berth_activation_create),
    .revision = 1,
};
