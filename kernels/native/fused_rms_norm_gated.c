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

static float formula(const berth_op_site *site, const berth_op_args *args, int64_t row, int64_t i,
                     float normal) {
    const berth_tensor *g = args->inputs[G];
    const float gate = berth_load_at(berth_row(g, row), g->dtype, i);
    return normal * berth_weight_at(args->inputs[WEIGHT], i) * berth_gate(site, ACTIVATION, gate);
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_norm_map(self, args, EPS, formula);
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
    .is_rowwise = berth_every_row,
    .reference_workspace = berth_norm_workspace,
    .has_decomposition = 1,
};
