// SPDX-License-Identifier: Apache-2.0
// quick_gelu: y = x · sigmoid(1.702·x).
//
//   x  [..., d]  f32, f16 or bf16
//   y  like x
//
// Three roundings, vLLM's QuickGELU.forward_native; its device kernel rounds once, which is within
// the tolerance.
#include <berth/op.h>

#include "elementwise.h"

static float formula(const berth_op_site *site, berth_dtype dtype, float x) {
    (void)site;
    const float inner = berth_round_to(dtype, 1.702f * x);
    return x * berth_round_to(dtype, berth_sigmoid(inner));
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_unary(self, args, formula);
}

const berth_op berth_op_quick_gelu = {
    BERTH_ELEMENTWISE("quick_gelu", "QuickGELU", berth_infer_unary),
    .revision = 1,
};
