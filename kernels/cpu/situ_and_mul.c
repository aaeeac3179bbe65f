// SPDX-License-Identifier: Apache-2.0
// situ_and_mul: beta · tanh(gate / beta) · sigmoid(gate) · u, u bounded where there is a
// linear_beta.
#include <cpu/elementwise.h>

enum { BETA, LINEAR_BETA };

// For bf16.
BERTH_INLINE berth_vec near(const berth_activation *self, berth_vec a, berth_vec b) {
    const float beta = self->numbers[BETA];
    const float linear = self->numbers[LINEAR_BETA];
    const berth_vec curve = berth_vec_tanh_near(a * berth_vec_of(1 / beta));
    const berth_vec gate = berth_vec_sigmoid_as(BERTH_DTYPE_BF16, a) * berth_vec_of(beta) * curve;
    return linear > 0
               ? gate * berth_vec_of(linear) * berth_vec_tanh_near(b * berth_vec_of(1 / linear))
               : gate * b;
}

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    if (BERTH_HAS_TABLE && dtype == BERTH_DTYPE_BF16) {
        return near(self, a, b);
    }
    const berth_vec beta = berth_vec_of(self->numbers[BETA]);
    const berth_vec linear = berth_vec_of(self->numbers[LINEAR_BETA]);
    const berth_vec_ratio gate = berth_vec_tanh_ratio(a * berth_vec_of(1 / self->numbers[BETA]));
    const berth_vec over = beta * gate.over;
    const berth_vec under = gate.under * berth_vec_sigmoid_base(a);
    if (self->numbers[LINEAR_BETA] > 0) {
        const berth_vec_ratio u =
            berth_vec_tanh_ratio(b * berth_vec_of(1 / self->numbers[LINEAR_BETA]));
        return over * linear * u.over / (under * u.under);
    }
    return over * b / under;
}

BERTH_SWEEP(gated, formula)

const berth_op_impl berth_kernel_situ_and_mul = {
    BERTH_ACTIVATION_KERNEL("situ_and_mul", berth_activation_create),
    .revision = 1,
};
