// SPDX-License-Identifier: Apache-2.0
// fatrelu_and_mul: y = (gate above the threshold, else 0) · up.
//
//   x  [..., 2d]  f32, f16 or bf16; the first half is the gate, the second `up`
//   y  [..., d]   x's dtype
//
// One rounding: vLLM's FatreluAndMul.forward_native. A NaN stays one; its device kernel makes it 0.
#include <berth/op.h>

#include "elementwise.h"

enum { THRESHOLD };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_finite(site, THRESHOLD));
    return berth_infer_gated(site, out);
}

static float formula(const berth_op_site *site, berth_dtype dtype, float gate, float up) {
    (void)dtype;
    const float threshold = (float)berth_site_f64(site, THRESHOLD);
    return (gate <= threshold ? 0 : gate) * up;
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_gated(self, args, formula);
}

static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("threshold", BERTH_ATTRIBUTE_F64, .f64 = 0.0),
};

const berth_op berth_op_fatrelu_and_mul = {
    BERTH_ELEMENTWISE("fatrelu_and_mul", "FatreluAndMul", infer),
    .revision = 1,
    BERTH_ATTRIBUTE_TABLE(attributes),
};
