// SPDX-License-Identifier: Apache-2.0
// fused_rms_norm_gated: y = x / sqrt(mean(x²) + eps) · weight · act(g) over the last dimension.
//
//   x       [..., hidden]  f32, f16 or bf16
//   g       like x
//   weight  [hidden]       optional; any float dtype
//   y       like x
//
// `activation`: swish (or silu) or sigmoid. The norm comes first, the gate after it; in f32 with
// one rounding: vLLM's FusedRMSNormGated.forward_native.
#include <berth/op.h>

#include "norm.h"

enum { X, G, WEIGHT };
enum { EPS, ACTIVATION };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_rows(site, X));
    BERTH_RULE_TRY(berth_rule_like(site, G, X));
    BERTH_RULE_TRY(berth_rule_per_column(site, WEIGHT, X));
    BERTH_RULE_TRY(berth_rule_eps(site, EPS));
    BERTH_RULE_TRY(berth_rule_gate(site, ACTIVATION));
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
        const void *gates = berth_row(args->inputs[G], row);
        berth_load(berth_row(x, row), x->dtype, 0, hidden, values);
        const float scale = berth_rms_scale(values, hidden, berth_site_f64(site, EPS));
        for (int64_t i = 0; i < hidden; ++i) {
            const float normal = values[i] * scale * berth_weight_at(args->inputs[WEIGHT], i);
            const float gate = berth_gate(site, ACTIVATION, berth_load_at(gates, x->dtype, i));
            berth_store_at(berth_row(y, row), y->dtype, i, normal * gate);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_STRIDED_INPUT("g"),
    BERTH_OPTIONAL_INPUT("weight"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-5),
    BERTH_OPTIONAL_ATTRIBUTE("activation", BERTH_ATTRIBUTE_STR, .str = "swish"),
};

const berth_op berth_op_fused_rms_norm_gated = {
    .size = sizeof(berth_op),
    .name = "fused_rms_norm_gated",
    .class_name = "FusedRMSNormGated",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    BERTH_ATTRIBUTE_TABLE(attributes),
    .infer = infer,
    .reference = reference,
    .reference_workspace = berth_norm_workspace,
    .has_decomposition = 1,
};
