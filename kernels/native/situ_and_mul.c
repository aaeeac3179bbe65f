// SPDX-License-Identifier: Apache-2.0
// situ_and_mul: y = beta · tanh(gate / beta) · sigmoid(gate) · u.
//
//   x  [..., 2d]  f32, f16 or bf16; the first half is the gate, the second `up`
//   y  [..., d]   x's dtype
//
// u = linear_beta · tanh(up / linear_beta), or up where there is no `linear_beta`. In f32 with one
// rounding: vLLM's SituAndMul.forward_native. Its device kernel multiplies by 1 / beta.
#include <berth/op.h>

#include "elementwise.h"

enum { BETA, LINEAR_BETA };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_positive(site, BETA));
    BERTH_RULE_TRY(berth_rule_positive(site, LINEAR_BETA));
    return berth_infer_gated(site, out);
}

static float formula(const berth_op_site *site, berth_dtype dtype, float gate, float up) {
    (void)dtype;
    const berth_attribute *linear = site->attributes[LINEAR_BETA];
    const float beta = (float)berth_site_f64(site, BETA);
    const float factor = (float)linear->f64;
    const float u = linear->kind == BERTH_ATTRIBUTE_NONE ? up : factor * tanhf(up / factor);
    return beta * tanhf(gate / beta) * berth_sigmoid(gate) * u;
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_gated(self, args, formula);
}

static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("beta", BERTH_ATTRIBUTE_F64, .f64 = 1.0),
    BERTH_ABSENT_ATTRIBUTE("linear_beta", BERTH_ATTRIBUTE_F64),
};

const berth_op berth_op_situ_and_mul = {
    BERTH_ELEMENTWISE("situ_and_mul", "SituAndMul", infer),
    .revision = 1,
    BERTH_ATTRIBUTE_TABLE(attributes),
};
