// SPDX-License-Identifier: Apache-2.0
// silu_and_mul: y = gate / (1 + e^−gate) · up, the quotient rounded to y's dtype.
#include <cpu/cpu.h>

#define CHUNK 256 // elements at a time

// Why two loops: e^x alone becomes vector code, inside the larger expression it does not.
BERTH_INLINE void silu_times(const void *x, void *y, int64_t width, berth_dtype dtype) {
    float powers[CHUNK];
    for (int64_t first = 0; first < width; first += CHUNK) {
        const int64_t count = width - first < CHUNK ? width - first : CHUNK;
        for (int64_t i = 0; i < count; ++i) {
            powers[i] = berth_exp_f32(-berth_load_at(x, dtype, first + i));
        }
        BERTH_INDEPENDENT
        for (int64_t i = 0; i < count; ++i) {
            const float gate = berth_load_at(x, dtype, first + i);
            const float up = berth_load_at(x, dtype, width + first + i);
            const float silu = berth_round_to(dtype, gate / (1.0f + powers[i]));
            berth_store_at(y, dtype, first + i, silu * up);
        }
    }
}

// One loop per dtype, so that none asks for it in every element.
static void silu_row(const void *x, void *y, int64_t width, berth_dtype dtype) {
    if (dtype == BERTH_DTYPE_F32) {
        silu_times(x, y, width, BERTH_DTYPE_F32);
    } else if (dtype == BERTH_DTYPE_BF16) {
        silu_times(x, y, width, BERTH_DTYPE_BF16);
    } else {
        silu_times(x, y, width, BERTH_DTYPE_F16);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t count = berth_row_count(y);
    for (int64_t row = 0; row < count; ++row) {
        silu_row(berth_row(x, row), berth_row(y, row), berth_row_length(y), y->dtype);
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
