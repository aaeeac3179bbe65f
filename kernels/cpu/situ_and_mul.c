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

// Of beta 1 and no linear_beta: with q = e^−gate, tanh(gate) · sigmoid(gate) is (1 − q) / (1 + q²).
// q is a power of two and what bends away from it, which 1 − q needs apart where the gate is small.
// Why the bound: q has to be finite; of its square, which is not, the quotient is the 0 of sigmoid.
BERTH_INLINE berth_vec plain(const berth_activation *self, berth_dtype dtype, berth_vec a,
                             berth_vec b) {
    // (2^x − 1) / x within 2^-22 and 2^-11 up to ±1/2, relative
    static const float all[] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f,
                                0x1.5bba0ap-10f};
    static const float few[] = {0x1.62e430p-1f, 0x1.efb038p-3f, 0x1.c8bdfap-5f};
    (void)self;
    const berth_vec one = berth_vec_of(1);
    const berth_vec power = berth_vec_at_most(berth_vec_of(-0x1.715476p+0f) * a, berth_vec_of(120));
    const berth_vec rest = berth_vec_rest(power);
    const berth_vec whole = berth_vec_scale(one, power - rest);
    const berth_vec slope = berth_is_near(dtype) ? berth_vec_polynomial(few, 3, rest)
                                                 : berth_vec_polynomial(all, 5, rest);
    const berth_vec bend = whole * rest * slope;
    const berth_vec over = one - whole - bend;
    const berth_vec under = berth_vec_fma(whole + bend, whole + bend, one);
    return (berth_is_near(dtype) ? over * berth_vec_estimate(under) : over / under) * b;
}

BERTH_SWEEP_EITHER(gated, plain, formula)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_activation_create(site, device, out_self);
    if (status == BERTH_OK) {
        berth_activation *self = *out_self;
        self->flag = self->numbers[BETA] == 1 && !(self->numbers[LINEAR_BETA] > 0);
    }
    return status;
}

const berth_op_impl berth_kernel_situ_and_mul = {
    BERTH_ACTIVATION_KERNEL("situ_and_mul", create),
    .revision = 1,
};
