// SPDX-License-Identifier: Apache-2.0
// silu_and_mul_with_clamp: g · sigmoid(alpha · g) · (u + beta) of the clamped halves, with one
// rounding.
#include <cpu/elementwise.h>

enum { SWIGLU_LIMIT, ALPHA, BETA };

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    const berth_vec limit = berth_vec_round_to(dtype, berth_vec_of(self->numbers[SWIGLU_LIMIT]));
    const berth_vec g = berth_vec_at_most(a, limit);
    const berth_vec glu = berth_vec_gate_as(dtype, g, berth_vec_of(self->numbers[ALPHA]), g);
    return glu * (berth_vec_clamp(b, limit) + berth_vec_of(self->numbers[BETA]));
}

BERTH_SWEEP(gated, formula)

const berth_op_impl berth_kernel_silu_and_mul_with_clamp = {
    BERTH_ACTIVATION_KERNEL("silu_and_mul_with_clamp", berth_activation_create),
    .revision = 1,
};
