// SPDX-License-Identifier: Apache-2.0
// gelu: x · (1 + erf(x/√2)) / 2. In this order the largest numbers overflow, and so they do here.
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)self;
    (void)unused;
    if (!berth_is_near(dtype)) {
        return berth_vec_gelu_halved(x);
    }
    const berth_vec y = berth_vec_gelu_erf_as(dtype, x);
    return berth_vec_of(0.5f) * (y + y);
}

BERTH_SWEEP(unary, formula)

const berth_op_impl berth_kernel_gelu = {
    BERTH_ACTIVATION_KERNEL("gelu", berth_activation_create),
    .revision = 1,
};
