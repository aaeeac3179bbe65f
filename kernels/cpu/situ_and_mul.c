// SPDX-License-Identifier: Apache-2.0
// situ_and_mul: beta · tanh(gate / beta) · sigmoid(gate) · u, u bounded where there is a
// linear_beta.
#include <cpu/elementwise.h>

enum { BETA, LINEAR_BETA };

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    (void)dtype;
    const berth_vec beta = berth_vec_of(self->numbers[BETA]);
    const berth_vec linear = berth_vec_of(self->numbers[LINEAR_BETA]);
    const berth_vec_ratio gate = berth_vec_tanh_ratio(a * berth_vec_of(1 / self->numbers[BETA]));
    berth_vec over = beta * gate.over;
    berth_vec under = gate.under * berth_vec_sigmoid_base(a);
    if (self->numbers[LINEAR_BETA] > 0) {
        const berth_vec_ratio u =
            berth_vec_tanh_ratio(b * berth_vec_of(1 / self->numbers[LINEAR_BETA]));
        return over * linear * u.over * berth_vec_reciprocal(under * u.under);
    }
    return over * berth_vec_reciprocal(under) * b;
}

BERTH_SWEEP(gated, formula)

const berth_op_impl berth_kernel_situ_and_mul = {
    BERTH_ACTIVATION_KERNEL("situ_and_mul", berth_activation_create),
    .revision = 1,
};
