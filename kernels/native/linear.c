// SPDX-License-Identifier: Apache-2.0
// linear: y = x · weightᵀ + bias.
//
//   x       [..., in]   f32, f16 or bf16
//   weight  [out, in]   f32, f16 or bf16, whatever x is
//   bias    [out]       optional, any float dtype
//   y       [..., out]  x's dtype
//
// Products and sums in f32, one rounding at the end with the bias inside: vLLM's linear layers.
#include <berth/op.h>

#include "rules.h"

enum { X, WEIGHT, BIAS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    for (uint64_t input = X; input <= BIAS; ++input) {
        BERTH_RULE_TRY(berth_rule_float(site, input));
        BERTH_RULE_TRY(berth_rule_width(site, input));
    }
    BERTH_RULE_TRY(berth_rule_rank(site, WEIGHT, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, WEIGHT, 1, berth_last_dim(site->inputs[X])));
    BERTH_RULE_TRY(berth_rule_rank(site, BIAS, 1));
    BERTH_RULE_TRY(berth_rule_dim(site, BIAS, 0, site->inputs[WEIGHT]->dims[0]));
    berth_value_type *y = berth_rule_give(out, site->inputs[X]);
    y->dims[y->ndim - 1] = site->inputs[WEIGHT]->dims[0];
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *bias = args->inputs[BIAS];
    const berth_tensor *y = args->outputs[0];
    const int64_t rows = berth_row_count(x);
    for (int64_t n = 0; n < weight->shape[0]; ++n) {
        const void *weight_row = berth_row(weight, n);
        const float start = bias ? berth_load_at(berth_data(bias), bias->dtype, n) : 0;
        for (int64_t row = 0; row < rows; ++row) {
            const float product =
                berth_dot(berth_row(x, row), x->dtype, weight_row, weight->dtype, weight->shape[1]);
            berth_store_at(berth_row(y, row), y->dtype, n, product + start);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_OPTIONAL_INPUT("bias"),
};

const berth_op berth_op_linear = {
    .size = sizeof(berth_op),
    .name = "linear",
    .class_name = "Linear",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
