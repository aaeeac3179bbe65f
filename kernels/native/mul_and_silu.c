// SPDX-License-Identifier: Apache-2.0
// mul_and_silu: y = first · silu(second).
//
//   x  [..., 2d]  f32, f16 or bf16; the second half goes through silu
//   y  [..., d]   x's dtype
//
// silu is rounded to y's dtype before the product: vLLM's MulAndSilu.forward_native, and its device
// kernel too.
#include <berth/op.h>

#include "elementwise.h"

static float formula(const berth_op_site *site, berth_dtype dtype, float first, float second) {
    (void)site;
    return first * berth_round_to(dtype, berth_silu(second));
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_gated(self, args, formula);
}

const berth_op berth_op_mul_and_silu = {
    BERTH_ELEMENTWISE("mul_and_silu", "MulAndSilu", berth_infer_gated),
    .revision = 1,
};
