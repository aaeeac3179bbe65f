// SPDX-License-Identifier: Apache-2.0
// gelu_tanh: y = x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))).
//
//   x  [..., d]  f32, f16 or bf16
//   y  like x
//
// In f32 with one rounding: vLLM's GELUTanh.forward_native. Its ROCm path takes the erf form
// instead; here the tanh form holds everywhere.
#include <berth/op.h>

#include "elementwise.h"

static float formula(const berth_op_site *site, berth_dtype dtype, float x) {
    (void)site;
    (void)dtype;
    return berth_gelu_tanh(x);
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_unary(self, args, formula);
}

const berth_op berth_op_gelu_tanh = {
    BERTH_ELEMENTWISE("gelu_tanh", "GELUTanh", berth_infer_unary),
    .revision = 1,
};
