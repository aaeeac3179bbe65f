// SPDX-License-Identifier: Apache-2.0
// xielu: ap·x² + beta·x for positive x, (expm1(min(x, eps)) − x)·an + beta·x for the others, with
// one rounding. The learned numbers are read at every call, since they are operands.
#include <cpu/elementwise.h>

enum { X, ALPHA_P, ALPHA_N, BETA, EPS };
enum { AP, AN, B, E };

// e^x − 1 for x ≤ 0, as 2^n·(2^r − 1) + (2^n − 1), with n = 0 near 0.
BERTH_INLINE berth_vec expm1_of(berth_vec x) {
    static const float near[] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f,
                                 0x1.5bba0ap-10f};
    const berth_vec power = berth_vec_of(0x1.715476p+0f) * x;
    const berth_vec rest = berth_vec_rest(power);
    const berth_vec one = berth_vec_of(1);
    const berth_vec whole = berth_vec_scale(one, power - rest);
    return berth_vec_fma(whole, rest * berth_vec_polynomial(near, 5, rest), whole - one);
}

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)dtype;
    (void)unused;
    const berth_vec square = berth_vec_of(self->numbers[AP]) * x * x;
    const berth_vec power = expm1_of(berth_vec_at_most(x, berth_vec_of(self->numbers[E])));
    const berth_vec below = (power - x) * berth_vec_of(self->numbers[AN]);
    const berth_vec curve = berth_vec_pick((berth_vec_ints)(x > 0.0f), square, below);
    return curve + berth_vec_of(self->numbers[B]) * x;
}

static void part_of(const void *work, int64_t part, int64_t parts) {
    const berth_sweep *in = work;
    berth_sweep_part(in, berth_sweep_unary_row, formula,
                     berth_share(berth_row_count(in->args->outputs[0]), part, parts));
}

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
    return berth_sweep_run(self, args, part_of);
}

const berth_op_impl berth_kernel_xielu = {
    BERTH_ACTIVATION_KERNEL("xielu", berth_activation_create),
    .revision = 1,
};
