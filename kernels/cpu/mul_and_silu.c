// SPDX-License-Identifier: Apache-2.0
// mul_and_silu: the first half times silu of the second, which is rounded before.
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    (void)self;
    return a * berth_vec_round_as(dtype, berth_vec_silu_as(dtype, b));
}

BERTH_SWEEP(gated, formula)

const berth_op_impl berth_kernel_mul_and_silu = {
    BERTH_ACTIVATION_KERNEL("mul_and_silu", berth_activation_create),
    .revision = 1,
};
