// SPDX-License-Identifier: Apache-2.0
// silu_and_mul: y = gate / (1 + e^−gate) · up, the quotient rounded to y's dtype.
#include <cpu/cpu.h>

// Why two loops: e^x alone becomes vector code, inside the larger expression it does not.
static void silu_times(const float *gate, const float *up, float *y, int64_t count,
                       berth_dtype dtype) {
    float powers[BERTH_CHUNK];
    for (int64_t i = 0; i < count; ++i) {
        powers[i] = berth_exp_f32(-gate[i]);
    }
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
        powers[i] = gate[i] / (1.0f + powers[i]);
    }
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count && dtype == BERTH_DTYPE_BF16; ++i) {
        powers[i] = berth_from_bf16(berth_to_bf16(powers[i]));
    }
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count && dtype == BERTH_DTYPE_F16; ++i) {
        powers[i] = berth_from_f16(berth_to_f16(powers[i]));
    }
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
        y[i] = powers[i] * up[i];
    }
}

static void silu_row(const void *x, void *y, int64_t width, berth_dtype dtype) {
    float gate_room[BERTH_CHUNK];
    float up_room[BERTH_CHUNK];
    float y_room[BERTH_CHUNK];
    for (int64_t first = 0; first < width; first += BERTH_CHUNK) {
        const int64_t count = berth_chunk(width, first);
        const float *gate = berth_floats(x, dtype, first, count, gate_room);
        const float *up = berth_floats(x, dtype, width + first, count, up_room);
        float *floats = berth_floats_of(y, dtype, first, y_room);
        silu_times(gate, up, floats, count, dtype);
        berth_floats_done(y, dtype, first, count, floats);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t width = berth_row_length(y);
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        silu_row(berth_row(x, row), berth_row(y, row), width, y->dtype);
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
    .supports = berth_supports_same,
    .forward = forward,
};
