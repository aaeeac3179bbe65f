// SPDX-License-Identifier: Apache-2.0
// silu_and_mul_with_clamp: y = g · sigmoid(alpha · g) · (u + beta) of the clamped halves.
//
//   x  [..., 2d]  f32, f16 or bf16; the first half is the gate, the second `up`
//   y  [..., d]   x's dtype
//
// g = min(gate, limit), u = clamp(up, ±limit), the limit rounded to x's dtype. Five roundings:
// vLLM's SiluAndMulWithClamp.forward_native; its device kernel has two, which is within the
// tolerance, and makes a NaN the limit, while here it stays NaN.
#include <berth/op.h>

#include "elementwise.h"

enum { SWIGLU_LIMIT, ALPHA, BETA };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_positive(site, SWIGLU_LIMIT));
    BERTH_RULE_TRY(berth_rule_finite(site, ALPHA));
    BERTH_RULE_TRY(berth_rule_finite(site, BETA));
    return berth_infer_gated(site, out);
}

static float formula(const berth_op_site *site, berth_dtype dtype, float gate, float up) {
    const float limit = berth_round_to(dtype, (float)berth_site_f64(site, SWIGLU_LIMIT));
    const float held = berth_at_most(gate, limit);
    const float inner = berth_round_to(dtype, (float)berth_site_f64(site, ALPHA) * held);
    const float glu = berth_round_to(dtype, held * berth_round_to(dtype, berth_sigmoid(inner)));
    const float beta = (float)berth_site_f64(site, BETA);
    return glu * berth_round_to(dtype, berth_clamp(up, limit) + beta);
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_gated(self, args, formula);
}

static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("swiglu_limit", BERTH_ATTRIBUTE_F64),
    BERTH_OPTIONAL_ATTRIBUTE("alpha", BERTH_ATTRIBUTE_F64, .f64 = 1.0),
    BERTH_OPTIONAL_ATTRIBUTE("beta", BERTH_ATTRIBUTE_F64, .f64 = 0.0),
};

const berth_op berth_op_silu_and_mul_with_clamp = {
    BERTH_ELEMENTWISE("silu_and_mul_with_clamp", "SiluAndMulWithClamp", infer),
    .revision = 1,
    BERTH_ATTRIBUTE_TABLE(attributes),
};
