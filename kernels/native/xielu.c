// SPDX-License-Identifier: Apache-2.0
// xielu: a quadratic for positive x, an exponential for the others, both learned.
//
//   x         [..., d]  f32, f16 or bf16
//   alpha_p   [1]       x's dtype
//   alpha_n   [1]       x's dtype
//   beta, eps []        x's dtype
//   y         like x
//
// With ap = softplus(alpha_p) and an = beta + softplus(alpha_n):
//   x > 0   ap·x·x + beta·x
//   x ≤ 0   (expm1(min(x, eps)) − x)·an + beta·x
// Every step is rounded: vLLM's XIELU.forward_native. Its optional CUDA library rounds once, which
// is within the tolerance.
#include <berth/op.h>

#include "elementwise.h"

enum { X, ALPHA_P, ALPHA_N, BETA, EPS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    for (uint64_t input = ALPHA_P; input <= EPS; ++input) {
        BERTH_RULE_TRY(berth_rule_same_dtype(site, input, X));
        BERTH_RULE_TRY(berth_rule_rank(site, input, input < BETA));
    }
    BERTH_RULE_TRY(berth_rule_dim(site, ALPHA_P, 0, BERTH_DIM_CONST(1)));
    BERTH_RULE_TRY(berth_rule_dim(site, ALPHA_N, 0, BERTH_DIM_CONST(1)));
    return berth_infer_unary(site, out);
}

static float softplus(berth_dtype dtype, float x) {
    return x > 20 ? x : berth_round_to(dtype, log1pf(expf(x)));
}

typedef struct learned {
    float positive; // ap
    float negative; // an
    float beta;
    float eps;
} learned;

static float formula(berth_dtype dtype, const learned *by, float x) {
    const float linear = berth_round_to(dtype, by->beta * x);
    if (x > 0) {
        const float slope = berth_round_to(dtype, by->positive * x);
        return berth_round_to(dtype, slope * x) + linear;
    }
    const float power = berth_round_to(dtype, expm1f(berth_at_most(x, by->eps)));
    return berth_round_to(dtype, berth_round_to(dtype, power - x) * by->negative) + linear;
}

static float first_of(const berth_op_args *args, uint64_t input) {
    return berth_load_at(berth_data(args->inputs[input]), args->inputs[input]->dtype, 0);
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    learned by = {.beta = first_of(args, BETA), .eps = first_of(args, EPS)};
    by.positive = softplus(x->dtype, first_of(args, ALPHA_P));
    by.negative = berth_round_to(x->dtype, by.beta + softplus(x->dtype, first_of(args, ALPHA_N)));
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        for (int64_t i = 0; i < berth_row_length(y); ++i) {
            const float value = berth_load_at(berth_row(x, row), x->dtype, i);
            berth_store_at(berth_row(y, row), y->dtype, i, formula(x->dtype, &by, value));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"), BERTH_INPUT("alpha_p"), BERTH_INPUT("alpha_n"),
    BERTH_INPUT("beta"),      BERTH_INPUT("eps"),
};

const berth_op berth_op_xielu = {
    .size = sizeof(berth_op),
    .name = "xielu",
    .class_name = "XIELU",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .has_decomposition = 1,
};
