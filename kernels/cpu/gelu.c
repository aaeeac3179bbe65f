// SPDX-License-Identifier: Apache-2.0
// gelu: x/2 · (1 + erf(x/√2)).
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)self;
    (void)dtype;
    (void)unused;
    const berth_vec erf = berth_vec_erf(x * berth_vec_of(0.70710678118654752440f));
    return berth_vec_of(0.5f) * (x * (berth_vec_of(1) + erf));
}

BERTH_SWEEP(unary, formula)

const berth_op_impl berth_kernel_gelu = {
    BERTH_ACTIVATION_KERNEL("gelu", berth_activation_create),
    .revision = 1,
};
