// SPDX-License-Identifier: Apache-2.0
// swiglustep_and_mul: min(silu(gate), limit) · clamp(up, ±limit), with one rounding.
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    const berth_vec limit = berth_vec_round_to(dtype, berth_vec_of(self->numbers[0]));
    return berth_vec_at_most(berth_vec_silu_as(dtype, a), limit) * berth_vec_clamp(b, limit);
}

BERTH_SWEEP(gated, formula)

const berth_op_impl berth_kernel_swiglustep_and_mul = {
    BERTH_ACTIVATION_KERNEL("swiglustep_and_mul", berth_activation_create),
    .revision = 1,
};
