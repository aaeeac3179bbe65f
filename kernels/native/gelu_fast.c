// SPDX-License-Identifier: Apache-2.0
// gelu_fast: y = x/2 · (1 + tanh(x·√(2/π) · (1 + 0.044715·x·x))), every step rounded.
//
//   x  [..., d]  f32, f16 or bf16
//   y  like x
//
// Rounding points: vLLM's FastGELU.forward_native, whose device kernels have the same. A kernel may
// round once at the end.
#include <berth/op.h>

#include "elementwise.h"

static float formula(const berth_op_site *site, berth_dtype dtype, float x) {
    (void)site;
    const float first = berth_round_to(dtype, x * 0.7978845608f);
    const float linear = berth_round_to(dtype, 0.044715f * x);
    const float square = berth_round_to(dtype, linear * x);
    const float inner = berth_round_to(dtype, first * berth_round_to(dtype, 1.0f + square));
    const float factor = berth_round_to(dtype, 1.0f + berth_round_to(dtype, tanhf(inner)));
    return berth_round_to(dtype, 0.5f * x) * factor;
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_unary(self, args, formula);
}

const berth_op berth_op_gelu_fast = {
    BERTH_ELEMENTWISE("gelu_fast", "FastGELU", berth_infer_unary),
    .revision = 1,
};
