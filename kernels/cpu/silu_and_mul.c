// SPDX-License-Identifier: Apache-2.0
// silu_and_mul: y = gate / (1 + e^−gate) · up, the quotient rounded to y's dtype.
#include <cpu/cpu.h>
#include <cpu/simd.h>

typedef struct job {
    const berth_op_args *args;
    int64_t width;
} job;

BERTH_INLINE void silu_row(const void *x, void *y, int64_t width, berth_dtype dtype) {
    for (int64_t first = 0; first < width; first += BERTH_LANES) {
        const berth_vec gate = berth_vec_load_some(x, dtype, first, width);
        const berth_vec up = berth_vec_load_some(x, dtype, width + first, 2 * width);
        const berth_vec silu = gate / (berth_vec_exp(-gate) + berth_vec_of(1));
        berth_vec_store_some(y, dtype, first, width, berth_vec_round_to(dtype, silu) * up);
    }
}

static void silu_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *y = in->args->outputs[0];
    const berth_rows from = berth_rows_of(in->args->inputs[0]);
    const berth_rows to = berth_rows_of(y);
    const berth_span rows = berth_share(berth_row_count(y), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const void *x = berth_rows_at(&from, row);
        if (y->dtype == BERTH_DTYPE_F32) {
            silu_row(x, berth_rows_at(&to, row), in->width, BERTH_DTYPE_F32);
        } else if (y->dtype == BERTH_DTYPE_BF16) {
            silu_row(x, berth_rows_at(&to, row), in->width, BERTH_DTYPE_BF16);
        } else {
            silu_row(x, berth_rows_at(&to, row), in->width, BERTH_DTYPE_F16);
        }
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_tensor *y = args->outputs[0];
    const job in = {.args = args, .width = berth_row_length(y)};
    // An e^x is worth many copies.
    berth_run(((const berth_instance *)self)->cpu, silu_part, &in,
              4 * berth_row_count(y) * in.width);
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
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
