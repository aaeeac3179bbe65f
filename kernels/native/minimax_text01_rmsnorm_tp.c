// SPDX-License-Identifier: Apache-2.0
// minimax_text01_rmsnorm_tp: y = x / sqrt(mean(x²) + eps) · weight over the last dimension.
//
//   x       [..., hidden]  f32, f16 or bf16
//   weight  [hidden]       any float dtype
//   y       like x
//
// In f32 with one rounding, where rms_norm has two: vLLM's MiniMaxText01RMSNormTP.forward on one
// rank, whatever the device. Ranks would have to add up the mean; that is not done here.
#include <berth/op.h>

#include "norm.h"

enum { X, WEIGHT };
enum { EPS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_rows(site, X));
    BERTH_RULE_TRY(berth_rule_per_column(site, WEIGHT, X));
    BERTH_RULE_TRY(berth_rule_eps(site, EPS));
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    const int64_t hidden = berth_row_length(y);
    float *values = berth_data(args->workspace); // [hidden]
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        berth_load(berth_row(x, row), x->dtype, 0, hidden, values);
        const float scale = berth_rms_scale(values, hidden, berth_site_f64(site, EPS));
        for (int64_t i = 0; i < hidden; ++i) {
            const float weight = berth_weight_at(args->inputs[WEIGHT], i);
            berth_store_at(berth_row(y, row), y->dtype, i, values[i] * scale * weight);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-6),
};

const berth_op berth_op_minimax_text01_rmsnorm_tp = {
    .size = sizeof(berth_op),
    .name = "minimax_text01_rmsnorm_tp",
    .class_name = "MiniMaxText01RMSNormTP",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    BERTH_ATTRIBUTE_TABLE(attributes),
    .infer = infer,
    .reference = reference,
    .reference_workspace = berth_norm_workspace,
    .has_decomposition = 1,
};
