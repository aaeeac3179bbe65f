// SPDX-License-Identifier: Apache-2.0
// clamp: y = x, but no further from 0 than `limit`.
//
//   x  [..., d]  f32, f16 or bf16
//   y  like x
//
// The limit is rounded to x's dtype, as torch.clamp does. A NaN stays one.
#include <berth/op.h>

#include "elementwise.h"

enum { LIMIT };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_positive(site, LIMIT));
    return berth_infer_unary(site, out);
}

static float formula(const berth_op_site *site, berth_dtype dtype, float x) {
    return berth_clamp(x, berth_round_to(dtype, (float)berth_site_f64(site, LIMIT)));
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_unary(self, args, formula);
}

static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("limit", BERTH_ATTRIBUTE_F64),
};

const berth_op berth_op_clamp = {
    BERTH_ELEMENTWISE("clamp", "Clamp", infer),
    .revision = 1,
    BERTH_ATTRIBUTE_TABLE(attributes),
};
