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

static float formula(const berth_op_site *site, const berth_op_args *args, int64_t row, int64_t i,
                     float normal) {
    (void)site;
    (void)row;
    return normal * berth_weight_at(args->inputs[WEIGHT], i);
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_norm_map(self, args, EPS, formula);
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
    .is_rowwise = berth_every_row,
    .reference_workspace = berth_norm_workspace,
    .has_decomposition = 1,
};
