// SPDX-License-Identifier: Apache-2.0
// gelu_new: y = x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))), every step rounded.
//
//   x  [..., d]  f32, f16 or bf16
//   y  like x
//
// Rounding points: vLLM's NewGELU.forward_native on a CPU, where x³ of f16 is rounded once and of
// bf16 twice; its device kernels always round twice. A kernel may round once at the end.
#include <berth/op.h>

#include "elementwise.h"

static float formula(const berth_op_site *site, berth_dtype dtype, float x) {
    (void)site;
    const float square = dtype == BERTH_DTYPE_F16 ? x * x : berth_round_to(dtype, x * x);
    const float cube = berth_round_to(dtype, square * x);
    const float sum = berth_round_to(dtype, x + berth_round_to(dtype, 0.044715f * cube));
    const float inner = berth_round_to(dtype, 0.79788456080286535588f * sum);
    const float factor = berth_round_to(dtype, 1.0f + berth_round_to(dtype, tanhf(inner)));
    return berth_round_to(dtype, 0.5f * x) * factor;
}

static berth_status reference(void *self, const berth_op_args *args) {
    return berth_map_unary(self, args, formula);
}

const berth_op berth_op_gelu_new = {
    BERTH_ELEMENTWISE("gelu_new", "NewGELU", berth_infer_unary),
    .revision = 1,
};
