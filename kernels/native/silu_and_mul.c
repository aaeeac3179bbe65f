// SPDX-License-Identifier: Apache-2.0
// silu_and_mul: y = silu(gate) · up with silu(v) = v / (1 + exp(−v)).
//
//   x  [..., 2d]  f32, f16 or bf16; the first half is the gate, the second `up`
//   y  [..., d]   x's dtype
//
// silu is rounded to y's dtype before the product: vLLM's SiluAndMul.forward_native, and its device
// kernels too.
#include <berth/op.h>

#include "elementwise.h"

static float formula(const berth_op_site *site, berth_dtype dtype, float gate, float up) {
    (void)site;
    return berth_round_to(dtype, berth_silu(gate)) * up;
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_gated(self, args, formula);
}

const berth_op berth_op_silu_and_mul = {
    BERTH_ELEMENTWISE("silu_and_mul", "SiluAndMul", berth_infer_gated),
    .revision = 1,
};
