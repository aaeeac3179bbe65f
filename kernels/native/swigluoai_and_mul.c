// SPDX-License-Identifier: Apache-2.0
// swigluoai_and_mul: y = (up + 1) · gate · sigmoid(alpha · gate), both clamped before.
//
//   x  [..., 2d]  f32, f16 or bf16; even columns are gates, odd ones `up`
//   y  [..., d]   x's dtype
//
// The gate is at most `limit`, up within ±limit, the limit rounded to x's dtype. Five roundings:
// vLLM's SwigluOAIAndMul.forward_native; its device kernel rounds once, which is within the
// tolerance, and makes a NaN the limit, while here it stays NaN.
#include <berth/op.h>

#include "elementwise.h"

enum { ALPHA, LIMIT };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_finite(site, ALPHA));
    BERTH_RULE_TRY(berth_rule_positive(site, LIMIT));
    return berth_infer_gated(site, out);
}

static float formula(const berth_op_site *site, berth_dtype dtype, float gate, float up) {
    const float limit = berth_round_to(dtype, (float)berth_site_f64(site, LIMIT));
    const float held = berth_at_most(gate, limit);
    const float inner = berth_round_to(dtype, held * (float)berth_site_f64(site, ALPHA));
    const float glu = berth_round_to(dtype, held * berth_round_to(dtype, berth_sigmoid(inner)));
    return berth_round_to(dtype, berth_clamp(up, limit) + 1.0f) * glu;
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_interleaved(self, args, formula);
}

static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("alpha", BERTH_ATTRIBUTE_F64, .f64 = 1.702),
    BERTH_OPTIONAL_ATTRIBUTE("limit", BERTH_ATTRIBUTE_F64, .f64 = 7.0),
};

const berth_op berth_op_swigluoai_and_mul = {
    BERTH_ELEMENTWISE("swigluoai_and_mul", "SwigluOAIAndMul", infer),
    .revision = 1,
    BERTH_ATTRIBUTE_TABLE(attributes),
};
