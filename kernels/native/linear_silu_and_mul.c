// SPDX-License-Identifier: Apache-2.0
// linear_silu_and_mul: y = silu(gate) · up, where gate and up are the halves of
// x · weightᵀ + bias: silu_and_mul of what linear gives, bit by bit.
//
//   x       [..., k]  f32, f16 or bf16
//   weight  [2d, k]   f32, f16 or bf16, whatever x is; the first half of its rows is the gate's
//   bias    [2d]      optional, any float dtype
//   y       [..., d]  x's dtype
//
// The first two linear layers of a gated MLP and its activation: LlamaMLP's gate_up_proj and act_fn
// in vLLM. What comes of the product is rounded to x's dtype, as if it were stored.
#include <berth/op.h>

#include "fused_parts.h"

extern const berth_op berth_op_linear;
extern const berth_op berth_op_silu_and_mul;

enum { X, WEIGHT, BIAS };

static void begin_linear(fused_part *part, const berth_op_site *site) {
    fused_begin(part, site, &berth_op_linear);
    fused_give_own(part, X);
    fused_give_own(part, WEIGHT);
    fused_give_own(part, BIAS);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    berth_value_type product;
    fused_part part;
    begin_linear(&part, site);
    BERTH_RULE_TRY(fused_infer(&part, &product, NULL));
    const berth_dim both = site->inputs[WEIGHT]->dims[0];
    if (both.b % 2 != 0) {
        return BERTH_RULE_FAIL(site, WEIGHT, "must have an even number of rows, has %lld",
                               (long long)both.b);
    }
    berth_value_type *y = berth_rule_give(out, &product);
    y->dims[y->ndim - 1].b = both.b / 2;
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *y = args->outputs[0];
    fused_part linear;
    fused_part activation;
    fused_row x;
    fused_row product;
    fused_row out;
    begin_linear(&linear, site);
    fused_begin(&activation, site, &berth_op_silu_and_mul);
    fused_lay(&product, berth_data(args->workspace), y->dtype, args->inputs[WEIGHT]->shape[0]);
    fused_pass_own(&linear, args, WEIGHT);
    fused_pass_own(&linear, args, BIAS);
    fused_pass(&activation, "x", &product.tensor);
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        fused_pass(&linear, "x", fused_row_of(&x, args->inputs[X], row));
        BERTH_RULE_TRY(fused_run(&linear, &product.tensor, NULL, NULL));
        BERTH_RULE_TRY(fused_run(&activation, fused_row_of(&out, y, row), NULL, NULL));
    }
    return BERTH_OK;
}

static uint64_t reference_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)site->inputs[WEIGHT]->dims[0].b * sizeof(float);
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_OPTIONAL_INPUT("bias"),
};

const berth_op berth_op_linear_silu_and_mul = {
    .size = sizeof(berth_op),
    .name = "linear_silu_and_mul",
    .class_name = "LinearSiluAndMul",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = reference_workspace,
};
