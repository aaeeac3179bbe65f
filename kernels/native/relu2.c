// SPDX-License-Identifier: Apache-2.0
// relu2: y = max(x, 0)².
//
//   x  [..., d]  f32, f16 or bf16
//   y  like x
//
// One rounding: vLLM's ReLUSquaredActivation.forward_native. A NaN stays one; vLLM's device kernel
// makes it 0.
#include <berth/op.h>

#include "elementwise.h"

static float formula(const berth_op_site *site, berth_dtype dtype, float x) {
    (void)site;
    (void)dtype;
    const float positive = x < 0 ? 0 : x;
    return positive * positive;
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_unary(self, args, formula);
}

const berth_op berth_op_relu2 = {
    BERTH_ELEMENTWISE("relu2", "ReLUSquaredActivation", berth_infer_unary),
    .revision = 1,
};
