// SPDX-License-Identifier: Apache-2.0
// situ_and_mul: beta · tanh(gate / beta) · sigmoid(gate) · u, u bounded where there is a
// linear_beta.
#include <cpu/elementwise.h>

enum { BETA, LINEAR_BETA };

// For bf16: tanh, which is ±1 from 4 on.
BERTH_INLINE berth_vec tanh_near(berth_vec x) {
    const berth_vec near = berth_vec_clamp(x, berth_vec_of(15.0f / BERTH_CURVE_TANH));
    return berth_vec_piece(berth_curve_tanh, BERTH_CURVE_TANH, near, near);
}

BERTH_INLINE berth_vec near(const berth_activation *self, berth_vec a, berth_vec b) {
    const float beta = self->numbers[BETA];
    const float linear = self->numbers[LINEAR_BETA];
    const berth_vec gate = berth_vec_sigmoid_as(BERTH_DTYPE_BF16, a) * berth_vec_of(beta) *
                           tanh_near(a * berth_vec_of(1 / beta));
    return linear > 0 ? gate * berth_vec_of(linear) * tanh_near(b * berth_vec_of(1 / linear))
                      : gate * b;
}

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    if (berth_is_near(dtype)) {
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
        return over / (under * u.under) * linear * u.over;
    }
    return over / under * b;
}

BERTH_SWEEP(gated, formula)

const berth_op_impl berth_kernel_situ_and_mul = {
    BERTH_ACTIVATION_KERNEL("situ_and_mul", berth_activation_create),
    .revision = 1,
};
