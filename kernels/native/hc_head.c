// SPDX-License-Identifier: Apache-2.0
// hc_head: several residual streams become one before the head, gate_i = sigmoid(x · hc_fn_i /
// sqrt(mean(x²) + rms_norm_eps) · hc_scale + hc_base_i) + hc_eps and y = Σ gate_i · stream i, with
// x all streams of a token in f32, one rounding.
//
//   hidden_states  [..., streams, hidden]     f32, f16 or bf16
//   hc_fn          [streams, streams · hidden]  f32
//   hc_scale       [1]                        f32
//   hc_base        [streams]                  f32
//   y              [..., hidden]              hidden_states' dtype
//
// vLLM's HCHeadOp has no native form; this is what its tests compare with. One of its device
// kernels rounds the normalised x to bf16 before the product; an implementation may.
#include <berth/op.h>

#include "mhc_streams.h"

enum { HIDDEN_STATES, HC_FN, HC_SCALE, HC_BASE };
enum { RMS_NORM_EPS, HC_EPS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(mhc_check_residual(site, HIDDEN_STATES));
    const berth_value_type *hidden = site->inputs[HIDDEN_STATES];
    BERTH_RULE_TRY(mhc_check_weights(site, HC_FN, hidden, mhc_streams(hidden), 1));
    BERTH_RULE_TRY(mhc_check_eps(site, RMS_NORM_EPS));
    BERTH_RULE_TRY(mhc_check_eps(site, HC_EPS));
    berth_value_type *y = berth_rule_give(out, hidden);
    --y->ndim;
    y->dims[y->ndim - 1] = berth_last_dim(hidden);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *hidden = args->inputs[HIDDEN_STATES];
    const int64_t streams = hidden->shape[hidden->ndim - 2];
    const float scale = *(const float *)berth_data(args->inputs[HC_SCALE]);
    const float *base = berth_data(args->inputs[HC_BASE]);
    float *gates = berth_data(args->workspace);
    for (int64_t token = 0; token < berth_row_count(args->outputs[0]); ++token) {
        const int64_t first = token * streams;
        const float norm =
            mhc_norm(hidden, first, streams, (float)site->attributes[RMS_NORM_EPS]->f64);
        for (int64_t i = 0; i < streams; ++i) {
            const float sum = mhc_product(hidden, first, streams, args->inputs[HC_FN], i);
            gates[i] =
                mhc_sigmoid(sum * norm * scale + base[i]) + (float)site->attributes[HC_EPS]->f64;
        }
        mhc_mix_streams(hidden, first, streams, gates, berth_row(args->outputs[0], token));
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("hidden_states"),
    BERTH_INPUT("hc_fn"),
    BERTH_INPUT("hc_scale"),
    BERTH_INPUT("hc_base"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("rms_norm_eps", BERTH_ATTRIBUTE_F64),
    BERTH_REQUIRED_ATTRIBUTE("hc_eps", BERTH_ATTRIBUTE_F64),
};

const berth_op berth_op_hc_head = {
    .size = sizeof(berth_op),
    .name = "hc_head",
    .class_name = "HCHeadOp",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = mhc_workspace,
};
