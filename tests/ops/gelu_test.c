// SPDX-License-Identifier: Apache-2.0
// What kernels/cpu/gelu.h promises, asked of floats of every magnitude: each result is within
// 2^-23, or 4 units in the last place, of what double precision gives; the quotient that stands for
// erf in sets without a table within 2^-19.
#include <math.h>

#include <tensor.h>

#include "support/op_case.h"
#include "support/test.h"

#define STEP  1021 // floats that are left out between two; every exponent has thousands
#define WIDTH 65536

static double by_erf(double x) {
    return x * 0.5 * erfc(-x * 0.70710678118654752440);
}

static double by_tanh(double x) {
    return x / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

// The largest error beside what is allowed.
static double worst_of(const op_case *self, double allowed, double (*right)(double)) {
    op_results got;
    double worst = 0;
    op_case_run(self, op_kernel_find(self->op->name), &got);
    for (int64_t i = 0; i < WIDTH; ++i) {
        const double x = op_tensor_get(&self->inputs[0], i);
        const double wanted = right(x);
        const double error = fabs(op_tensor_get(&got.outputs[0], i) - wanted);
        worst = fmax(worst, error / (allowed + fabs(wanted) * 0x1p-21));
    }
    op_results_free(&got);
    return worst;
}

static void check_all(const char *name, double allowed, double (*right)(double)) {
    const op_shape shape = {.dtype = BERTH_DTYPE_F32, .ndim = 1, .dims = {BERTH_DIM_CONST(WIDTH)}};
    op_case at_hand;
    op_case_init(&at_hand, op_find(name));
    op_tensor_make(&at_hand.inputs[0], &shape, &at_hand);
    const uint32_t end = berth_bits_of_float(0x1p+120f);
    uint32_t magnitude = 0;
    while (magnitude < end) {
        for (int64_t i = 0; i < WIDTH; ++i) {
            const float x = berth_float_of_bits(magnitude < end ? magnitude : end);
            op_tensor_set(&at_hand.inputs[0], i, (double)(i % 2 == 0 ? x : -x));
            magnitude += STEP;
        }
        CHECK(worst_of(&at_hand, allowed, right) <= 1);
    }
    op_case_free(&at_hand);
}

TEST(gelu_is_as_exact_as_it_says_at_every_magnitude) {
    if (!op_kernels_are_built()) {
        SKIP("platform-cpu is not built");
    }
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        const bool has_table = set == 0 && op_kernel_sets() == 3; // AVX-512 is the first of all
        check_all("gelu", has_table ? 0x1p-23 : 0x1p-19, by_erf);
        check_all("gelu_tanh", 0x1p-23, by_tanh);
        check_all("gelu_new", 0x1p-23, by_tanh);
    }
}
