// SPDX-License-Identifier: Apache-2.0
// xielu: ap·x² + beta·x for positive x, (expm1(min(x, eps)) − x)·an + beta·x for the others, with
// one rounding. The learned numbers are read at every call, since they are operands.
#include <cpu/elementwise.h>

enum { X, ALPHA_P, ALPHA_N, BETA, EPS };
enum { AP, AN, B, E };

// e^x − 1 − x for x ≤ 0 by pieces of width 1/4, see near.h: the first about 0, the last −1 − x. The
// error is 2^-11.
// clang-format off
static const float bend[BERTH_CURVE_TERMS][BERTH_TABLE] = {
    {0, -0x1p+0f, -0x1.f59ddcp-1f, -0x1.f36dfcp-1f, -0x1.f0cf08p-1f, -0x1.edacf2p-1f, -0x1.e9f0ap-1f, -0x1.e57faap-1f, -0x1.e03c1ap-1f, -0x1.da0442p-1f, -0x1.d2b2a6p-1f, -0x1.ca1e22p-1f, -0x1.c01a32p-1f, -0x1.b477ap-1f, -0x1.a70592p-1f, -0x1.979328p-1f, -0x1.85f1ccp-1f, -0x1.71f852p-1f, -0x1.5b8728p-1f, -0x1.428da8p-1f, -0x1.2710aep-1f, -0x1.093286p-1f, -0x1.d277d4p-2f, -0x1.8f4b8cp-2f, -0x1.4a455ap-2f, -0x1.054cdep-2f, -0x1.85a3dp-3f, -0x1.0b7f3cp-3f, -0x1.453bd4p-4f, -0x1.4515eap-5f, -0x1.c19ba6p-7f, -0x1.cca548p-10f},
    {0, -0x1p+0f, -0x1.fd9722p-1f, -0x1.fcff38p-1f, -0x1.fc42c6p-1f, -0x1.fb594cp-1f, -0x1.fa386cp-1f, -0x1.f8d382p-1f, -0x1.f71b32p-1f, -0x1.f4fcecp-1f, -0x1.f26246p-1f, -0x1.ef305cp-1f, -0x1.eb4706p-1f, -0x1.e6800cp-1f, -0x1.e0ae52p-1f, -0x1.d99cf6p-1f, -0x1.d10e98p-1f, -0x1.c6bcb8p-1f, -0x1.ba5796p-1f, -0x1.ab8686p-1f, -0x1.99e95cp-1f, -0x1.851b4ap-1f, -0x1.6cb80ap-1f, -0x1.50644p-1f, -0x1.2fdaacp-1f, -0x1.0b0014p-1f, -0x1.c40164p-2f, -0x1.6af61ap-2f, -0x1.0d7a8cp-2f, -0x1.60705ap-3f, -0x1.6b6832p-4f, -0x1.961b78p-6f},
    {0x1.f0fabep-2f, 0, 0x1.22424p-12f, 0x1.74b31ep-12f, 0x1.de8e4cp-12f, 0x1.333d2ap-11f, 0x1.8a80aap-11f, 0x1.fa8d26p-11f, 0x1.45366p-10f, 0x1.a194bcp-10f, 0x1.0c17a2p-9f, 0x1.583cc2p-9f, 0x1.ba026ep-9f, 0x1.1bc694p-8f, 0x1.6c600ep-8f, 0x1.d3ddf8p-8f, 0x1.2c6068p-7f, 0x1.81b0f2p-7f, 0x1.ef3cbep-7f, 0x1.3df2dap-6f, 0x1.98410ep-6f, 0x1.061ab6p-5f, 0x1.508c72p-5f, 0x1.b02312p-5f, 0x1.156ffcp-4f, 0x1.643c9ap-4f, 0x1.c96acp-4f, 0x1.25aae4p-3f, 0x1.79139ap-3f, 0x1.e42d08p-3f, 0x1.36d8dap-2f, 0x1.8f22b4p-2f},
};
// clang-format on

#define DENSITY 4
#define BOUND   ((BERTH_TABLE - 1.0f) / DENSITY)

// e^x − 1 for x ≤ 0, as 2^n·(2^r − 1) + (2^n − 1), with n = 0 near 0.
BERTH_INLINE berth_vec expm1_of(berth_vec x) {
    static const float near[] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f,
                                 0x1.5bba0ap-10f};
    const berth_vec power = berth_vec_of(0x1.715476p+0f) * x;
    const berth_vec rest = berth_vec_rest(power);
    const berth_vec one = berth_vec_of(1);
    const berth_vec whole = berth_vec_scale(one, power, rest);
    return berth_vec_fma(whole, rest * berth_vec_polynomial(near, 5, rest), whole - one);
}

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)dtype;
    (void)unused;
    const berth_vec square = berth_vec_of(self->numbers[AP]) * x * x;
    const berth_vec power = expm1_of(berth_vec_at_most(x, berth_vec_of(self->numbers[E])));
    const berth_vec below = (power - x) * berth_vec_of(self->numbers[AN]);
    const berth_vec curve = berth_vec_if_less(berth_vec_of(0), x, square, below);
    return curve + berth_vec_of(self->numbers[B]) * x;
}

// The same in bf16, but that there is no eps.
BERTH_INLINE berth_vec near(const berth_activation *self, berth_dtype dtype, berth_vec x,
                            berth_vec unused) {
    if (!berth_has_curve(dtype)) {
        return formula(self, dtype, x, unused);
    }
    const berth_vec below = berth_vec_min(berth_vec_of(0), x);
    const berth_vec bounded = berth_vec_bound(below, berth_vec_of(BOUND));
    const berth_vec curve = berth_vec_piece(bend, DENSITY, bounded, below);
    const berth_vec above = berth_vec_max(berth_vec_of(0), x);
    const berth_vec square = berth_vec_of(self->numbers[AP]) * above * above;
    const berth_vec bent = berth_vec_fma(berth_vec_of(self->numbers[AN]), curve, square);
    return bent + berth_vec_of(self->numbers[B]) * x;
}

BERTH_SWEEP_PART(unary, formula, near)

static float first_of(const berth_op_args *args, uint64_t input) {
    return berth_load_at(berth_data(args->inputs[input]), args->inputs[input]->dtype, 0);
}

static float softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_dtype dtype = args->inputs[X]->dtype;
    berth_activation *of = self;
    of->numbers[B] = first_of(args, BETA);
    of->numbers[E] = first_of(args, EPS);
    of->numbers[AP] = berth_round_to(dtype, softplus(first_of(args, ALPHA_P)));
    of->numbers[AN] = berth_round_to(
        dtype, of->numbers[B] + berth_round_to(dtype, softplus(first_of(args, ALPHA_N))));
    of->flag = of->numbers[E] < -0x1p-10f;
    return berth_sweep_run(self, args, part_of);
}

const berth_op_impl berth_kernel_xielu = {
    BERTH_ACTIVATION_KERNEL("xielu", berth_activation_create),
    .revision = 1,
};
