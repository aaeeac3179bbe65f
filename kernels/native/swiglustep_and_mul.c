// SPDX-License-Identifier: Apache-2.0
// swiglustep_and_mul: y = min(silu(gate), limit) · clamp(up, ±limit).
//
//   x  [..., 2d]  f32, f16 or bf16; the first half is the gate, the second `up`
//   y  [..., d]   x's dtype
//
// The clamp comes after silu, the limit is rounded to x's dtype. Two roundings: vLLM's
// SwigluStepAndMul.forward_native; its device kernel rounds once, which is within the tolerance.
#include <berth/op.h>

#include "elementwise.h"

enum { LIMIT };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_positive(site, LIMIT));
    return berth_infer_gated(site, out);
}

static float formula(const berth_op_site *site, berth_dtype dtype, float gate, float up) {
    const float limit = berth_round_to(dtype, (float)berth_site_f64(site, LIMIT));
    const float silu = berth_round_to(dtype, berth_silu(gate));
    return berth_at_most(silu, limit) * berth_clamp(up, limit);
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_gated(self, args, formula);
}

static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("limit", BERTH_ATTRIBUTE_F64, .f64 = 7.0),
};

const berth_op berth_op_swiglustep_and_mul = {
    BERTH_ELEMENTWISE("swiglustep_and_mul", "SwigluStepAndMul", infer),
    .revision = 1,
    BERTH_ATTRIBUTE_TABLE(attributes),
};
