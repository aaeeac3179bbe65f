// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul: y = gelu(gate) · up.
//
//   x  [..., 2d]  f32, f16 or bf16; the first half is the gate, the second `up`
//   y  [..., d]   x's dtype
//
// `approximate`: "none" (erf) or "tanh". gelu is rounded to y's dtype before the product: vLLM's
// GeluAndMul.forward_native and its kernels. Its ROCm native path takes "none" for "tanh"; here
// "tanh" means tanh everywhere.
#include <berth/op.h>

#include "elementwise.h"

enum { APPROXIMATE };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_approximate(site, APPROXIMATE));
    return berth_infer_gated(site, out);
}

static float formula(const berth_op_site *site, berth_dtype dtype, float gate, float up) {
    const float gelu =
        berth_site_is(site, APPROXIMATE, "tanh") ? berth_gelu_tanh(gate) : berth_gelu_erf(gate);
    return berth_round_to(dtype, gelu) * up;
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_gated(self, args, formula);
}

static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("approximate", BERTH_ATTRIBUTE_STR, .str = "none"),
};

const berth_op berth_op_gelu_and_mul = {
    BERTH_ELEMENTWISE("gelu_and_mul", "GeluAndMul", infer),
    .revision = 1,
    BERTH_ATTRIBUTE_TABLE(attributes),
};
