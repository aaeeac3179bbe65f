// SPDX-License-Identifier: Apache-2.0
// fused_linear: y = f(x) · weightᵀ + bias, where f is a norm or an activation: linear of what
// rms_norm or silu_and_mul gives, bit by bit.
//
//   x            [..., k]    [..., 2k] before silu_and_mul; f32, f16 or bf16
//   weight       [out, k]    f32, f16 or bf16, whatever x is
//   residual     like x      optional, of rms_norm
//   norm_weight  [k]         optional, of rms_norm
//   bias         [out]       optional, any float dtype
//   y            [..., out]  x's dtype
//   residual_out like x      only with `residual`: x + residual
//
// `prologue` is f, "rms_norm" or "silu_and_mul"; `eps` is the norm's. fused_product.h has more.
#include <berth/op.h>

#include "fused_product.h"

extern const berth_op berth_op_linear;

enum { X, WEIGHT, RESIDUAL, NORM_WEIGHT, BIAS };

static void begin_linear(fused_part *part, const berth_op_site *site, const berth_value_type *f) {
    fused_begin(part, site, &berth_op_linear);
    fused_give(part, "x", X, f);
    fused_give_own(part, WEIGHT);
    fused_give_own(part, BIAS);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    berth_value_type f;
    berth_value_type sum = {0};
    berth_value_type y;
    fused_part part;
    BERTH_RULE_TRY(fused_infer_floats(site, RESIDUAL, &f, &sum));
    begin_linear(&part, site, &f);
    BERTH_RULE_TRY(fused_infer(&part, &y, NULL));
    return fused_give_out(site, RESIDUAL, &y, &sum, out);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *y = args->outputs[FUSED_Y];
    fused_part part;
    fused_row f;
    fused_row out;
    begin_linear(&part, site, NULL);
    fused_lay(&f, berth_data(args->workspace), args->inputs[X]->dtype, fused_width(site));
    fused_pass(&part, "x", &f.tensor);
    fused_pass_own(&part, args, WEIGHT);
    fused_pass_own(&part, args, BIAS);
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        BERTH_RULE_TRY(fused_run_prologue(site, args, RESIDUAL, row, &f.tensor));
        BERTH_RULE_TRY(fused_run(&part, fused_row_of(&out, y, row), NULL, NULL));
    }
    return BERTH_OK;
}

static uint64_t reference_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)fused_width(site) * sizeof(float);
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    FUSED_PROLOGUE_INPUTS,
    BERTH_OPTIONAL_INPUT("bias"),
};
static const berth_op_attribute *const attributes[] = {FUSED_PROLOGUE_ATTRIBUTES};

const berth_op berth_op_fused_linear = {
    .size = sizeof(berth_op),
    .name = "fused_linear",
    .class_name = "FusedLinear",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = reference_workspace,
};
