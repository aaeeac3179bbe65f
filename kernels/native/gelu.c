// SPDX-License-Identifier: Apache-2.0
// gelu: y = x/2 · (1 + erf(x/√2)).
//
//   x  [..., d]  f32, f16 or bf16
//   y  like x
//
// In f32 with one rounding: vLLM's GELU.forward_native, which its device path runs too.
#include <berth/op.h>

#include "elementwise.h"

static float formula(const berth_op_site *site, berth_dtype dtype, float x) {
    (void)site;
    (void)dtype;
    // Why the halving last: beyond half the largest float this is infinite, as in vLLM on a CPU.
    return 0.5f * (x * (1.0f + erff(x * 0.70710678118654752440f)));
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_unary(self, args, formula);
}

const berth_op berth_op_gelu = {
    BERTH_ELEMENTWISE("gelu", "GELU", berth_infer_unary),
    .revision = 1,
};
