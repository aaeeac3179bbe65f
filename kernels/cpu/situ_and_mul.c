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
    if (berth_has_curve(dtype)) {
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

// For bf16, of beta 1 and no linear_beta: tanh(gate) · sigmoid(gate) by pieces as the curves of
// near.h, but of degree 3, and more of them below 0 than above: what it ends in is e^gate there. It
// is 0 from -9.7 on and 1 from 7.4. The polynomials go through it at the zeros of a Chebyshev
// polynomial on the piece; the one about 0 is x times one of degree 2. Errors: 2^-9.1 of the
// result, or 2^-14. Why: by q as below it is half as many steps again, 0.71 of a copy's speed.
#define DENSITY 1.7f
#define TERMS   4
#define LEAST   17 // pieces below 0; they stand behind the others
#define MOST    13 // and above
#define ZERO    2  // the place of the one about 0
// clang-format off
static const float gates[TERMS][BERTH_TABLE] = {
    {-0x1.517312p-6f, 0x1.0b019ap-7f, 0, -0x1.878e52p-8f, -0x1.b765f4p-4f, -0x1.346f46p-3f, -0x1.469ebp-7f, 0x1.98d4cp-3f, 0x1.9417bap-2f, 0x1.1ad7a8p-1f, 0x1.592bb2p-1f, 0x1.883e82p-1f, 0x1.ab3d5p-1f, 0x1.c4d7a8p-1f, 0x1.d743b2p-1f, 0x1p+0f, 0, 0, -0x1.047cep-6f, -0x1.8b4084p-6f, -0x1.28c47cp-5f, -0x1.b8628ap-5f, -0x1.424854p-4f, -0x1.d013cap-4f, -0x1.47937p-3f, -0x1.c316c6p-3f, -0x1.2ca1c8p-2f, -0x1.7f1102p-2f, -0x1.c880bep-2f, -0x1.e78a9p-2f, -0x1.a842dcp-2f, -0x1.d0d5e4p-3f},
    {0x1.fb0bc4p-2f, 0x1.22ae94p-1f, 0x1p-1f, 0x1.155b3ep-1f, 0x1.c7ae8p-1f, 0x1.fc7f68p-1f, 0x1.949274p-1f, 0x1.1a361cp-1f, 0x1.79f50cp-2f, 0x1.f4c3p-3f, 0x1.4a55c4p-3f, 0x1.b1b1aap-4f, 0x1.1acc8ep-4f, 0x1.6de9d8p-5f, 0x1.d58988p-6f, 0, 0, 0, -0x1.264ffp-8f, -0x1.d81f18p-8f, -0x1.77e8fep-7f, -0x1.28c4d4p-6f, -0x1.cfdf78p-6f, -0x1.6618acp-5f, -0x1.102974p-4f, -0x1.953a6ap-4f, -0x1.250556p-3f, -0x1.95702ep-3f, -0x1.04550ap-2f, -0x1.20681ap-2f, -0x1.aba60cp-3f, 0x1.230442p-4f},
    {0x1.9adac8p-2f, 0x1.d1d194p-2f, 0x1.f283d6p-3f, 0x1.4c3344p-3f, -0x1.f42318p-3f, -0x1.4ceefep-2f, -0x1.d1410cp-3f, -0x1.16d888p-3f, -0x1.45347ep-4f, -0x1.7d8f46p-5f, -0x1.c43926p-6f, -0x1.0db76ep-6f, -0x1.42749ap-7f, -0x1.813f7ap-8f, -0x1.cb325p-9f, 0, 0, 0, -0x1.c01084p-12f, -0x1.7c75fap-11f, -0x1.41c54cp-10f, -0x1.0ed5f6p-9f, -0x1.c53b1p-9f, -0x1.7853b8p-8f, -0x1.3535f8p-7f, -0x1.f4714p-7f, -0x1.8b7082p-6f, -0x1.2bffa8p-5f, -0x1.a4a5a6p-5f, -0x1.e86652p-5f, -0x1.fb8f66p-6f, 0x1.bda46ep-4f},
    {0x1.71b848p-4f, 0x1.9809d4p-4f, -0x1.4cb3aep-3f, -0x1.23d2fcp-3f, 0x1.2b7a6cp-6f, 0x1.4172a2p-5f, 0x1.7fea18p-6f, 0x1.846dccp-7f, 0x1.85dac4p-8f, 0x1.91a32ep-9f, 0x1.a8e858p-10f, 0x1.ca435ap-11f, 0x1.f456ccp-12f, 0x1.1326ep-12f, 0x1.2feac2p-13f, 0, 0, 0, -0x1.cae47ep-17f, -0x1.9cf814p-16f, -0x1.737b92p-15f, -0x1.4de7fcp-14f, -0x1.2bb5fep-13f, -0x1.0c54f8p-12f, -0x1.de393cp-12f, -0x1.a668bcp-11f, -0x1.6eccbap-10f, -0x1.339048p-9f, -0x1.dc2958p-9f, -0x1.249d74p-8f, -0x1.73391ap-11f, 0x1.72c066p-6f},
};
// clang-format on

BERTH_INLINE berth_vec plain_near(berth_vec x) {
    // The sum's lowest bits are a whole number.
    const berth_vec magic = berth_vec_of(0x1.8p+23f + ZERO);
    const berth_vec below = berth_vec_at_most(x, berth_vec_of(MOST / DENSITY));
    const berth_vec near = berth_vec_max(berth_vec_of(-LEAST / DENSITY), below);
    const berth_vec_bits at = (berth_vec_bits)berth_vec_fma(near, berth_vec_of(DENSITY), magic);
    berth_vec sum = berth_vec_table(gates[TERMS - 1], at);
    BERTH_UNROLL
    for (int i = TERMS - 2; i >= 0; --i) {
        sum = berth_vec_fma(sum, near, berth_vec_table(gates[i], at));
    }
    return sum;
}

// Of beta 1 and no linear_beta: with q = e^−gate, tanh(gate) · sigmoid(gate) is (1 − q) / (1 + q²).
// q is a power of two and what bends away from it, which 1 − q needs apart where the gate is small.
// Why the bound: q has to be finite; of its square, which is not, the quotient is the 0 of sigmoid.
BERTH_INLINE berth_vec plain(const berth_activation *self, berth_dtype dtype, berth_vec a,
                             berth_vec b) {
    // (2^x − 1) / x within 2^-22 up to ±1/2, relative
    static const float all[] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f,
                                0x1.5bba0ap-10f};
    (void)self;
    if (berth_has_curve(dtype)) {
        return plain_near(a) * b;
    }
    const berth_vec one = berth_vec_of(1);
    const berth_vec power = berth_vec_at_most(berth_vec_of(-0x1.715476p+0f) * a, berth_vec_of(120));
    const berth_vec rest = berth_vec_rest(power);
    const berth_vec whole = berth_vec_scale(one, power, rest);
    const berth_vec bend = whole * rest * berth_vec_polynomial(all, 5, rest);
    const berth_vec over = one - whole - bend;
    const berth_vec under = berth_vec_fma(whole + bend, whole + bend, one);
    return over / under * b;
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
