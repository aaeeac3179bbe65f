// SPDX-License-Identifier: Apache-2.0
// quick_gelu: x · sigmoid(1.702·x), with one rounding.
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)self;
    (void)unused;
    if (berth_has_curve(dtype)) {
        return berth_vec_curve(berth_curve_quick_gelu, BERTH_CURVE_QUICK, x);
    }
    return berth_vec_gate_as(dtype, x, berth_vec_of(1.702f), x);
}

BERTH_SWEEP(unary, formula)

const berth_op_impl berth_kernel_quick_gelu = {
    BERTH_ACTIVATION_KERNEL("quick_gelu", berth_activation_create),
    .revision = 1,
};
