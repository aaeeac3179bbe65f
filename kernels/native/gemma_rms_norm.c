// SPDX-License-Identifier: Apache-2.0
// gemma_rms_norm: y = x / sqrt(mean(x²) + eps) · (1 + weight) over the last dimension; with
// `residual`, the sum x + residual takes x's place and is the second output.
//
//   x             [..., hidden]  f32, f16 or bf16
//   weight        [hidden]       any float dtype, stored without the 1
//   residual      like x         optional; any float dtype
//   y             like x
//   residual_out  like x         only with `residual`; rounded, while y comes from the unrounded
//   sum
//
// 1 + weight and the product are f32, so there is one rounding: vLLM's GemmaRMSNorm.forward_native,
// which its device path runs too.
#include <berth/op.h>

#include "norm.h"

enum { X, WEIGHT, RESIDUAL };
enum { EPS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_rows(site, X));
    BERTH_RULE_TRY(berth_rule_per_column(site, WEIGHT, X));
    BERTH_RULE_TRY(berth_rule_float(site, RESIDUAL));
    BERTH_RULE_TRY(berth_rule_same_shape(site, RESIDUAL, X));
    BERTH_RULE_TRY(berth_rule_eps(site, EPS));
    berth_rule_give(out, site->inputs[X]);
    if (site->inputs[RESIDUAL]) {
        berth_rule_give(out, site->inputs[X]);
    }
    return BERTH_OK;
}

// The row of x, or of the unrounded x + residual.
static void load_row(const berth_op_args *args, int64_t row, int64_t hidden, float *values) {
    const berth_tensor *residual = args->inputs[RESIDUAL];
    berth_load(berth_row(args->inputs[X], row), args->inputs[X]->dtype, 0, hidden, values);
    for (int64_t i = 0; residual && i < hidden; ++i) {
        values[i] += berth_load_at(berth_row(residual, row), residual->dtype, i);
    }
    if (residual) {
        berth_store(berth_row(args->outputs[1], row), args->outputs[1]->dtype, 0, hidden, values);
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *y = args->outputs[0];
    const int64_t hidden = berth_row_length(y);
    float *values = berth_data(args->workspace); // [hidden]
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        load_row(args, row, hidden, values);
        const float scale = berth_rms_scale(values, hidden, berth_site_f64(site, EPS));
        for (int64_t i = 0; i < hidden; ++i) {
            const float weight = 1.0f + berth_weight_at(args->inputs[WEIGHT], i);
            berth_store_at(berth_row(y, row), y->dtype, i, values[i] * scale * weight);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_OPTIONAL_STRIDED_INPUT("residual"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-6),
};

const berth_op berth_op_gemma_rms_norm = {
    .size = sizeof(berth_op),
    .name = "gemma_rms_norm",
    .class_name = "GemmaRMSNorm",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    BERTH_ATTRIBUTE_TABLE(attributes),
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = berth_norm_workspace,
    .has_decomposition = 1,
};
