// SPDX-License-Identifier: Apache-2.0
// silu_and_mul: y = gate · sigmoid(gate) · up, the first product rounded to y's dtype.
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    (void)self;
    return berth_vec_round_as(dtype, berth_vec_silu_as(dtype, a)) * b;
}

BERTH_SWEEP(gated, formula)

const berth_op_impl berth_kernel_silu_and_mul = {
    BERTH_ACTIVATION_KERNEL("silu_and_mul", berth_activation_create),
    .revision = 1,
};
