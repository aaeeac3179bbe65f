// SPDX-License-Identifier: Apache-2.0
// silu_and_mul in float32: y = gate / (1 + e^−gate) · up.
#include <cpu/cpu.h>

// Why two loops: e^x alone becomes vector code, inside the larger expression it does not.
static void silu_times(const float *restrict gate, const float *restrict up, float *restrict y,
                       int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        y[i] = berth_exp_f32(-gate[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
        y[i] = gate[i] / (1.0f + y[i]) * up[i];
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t width = berth_row_length(y);
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        const float *gate = berth_row(x, row);
        silu_times(gate, gate + width, berth_row(y, row), width);
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_silu_and_mul = {
    .size = sizeof(berth_op_impl),
    .op = "silu_and_mul",
    .name = "cpu.silu_and_mul",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = berth_supports_f32,
    .forward = forward,
};
