// SPDX-License-Identifier: Apache-2.0
// scale_rows: row by row, one rounding.
#include <cpu/cpu.h>
#include <cpu/simd.h>

enum { X, SCALE };

BERTH_INLINE void scale_row(const void *x, float by, void *y, int64_t width, berth_dtype dtype) {
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        berth_vec_store_some(y, dtype, i, width,
                             berth_vec_load_some(x, dtype, i, width) * berth_vec_of(by));
    }
}

static void scale_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *scale = args->inputs[SCALE];
    const berth_tensor *y = args->outputs[0];
    const berth_rows from = berth_rows_of(args->inputs[X]);
    const berth_rows to = berth_rows_of(y);
    const int64_t width = berth_row_length(y);
    const int64_t per_token = y->shape[0] > 0 ? berth_row_count(y) / y->shape[0] : 1;
    const berth_span rows = berth_share(berth_row_count(y), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const float by = berth_load_at(berth_row(scale, row / per_token), scale->dtype, 0);
        const void *x = berth_rows_at(&from, row);
        if (y->dtype == BERTH_DTYPE_F32) {
            scale_row(x, by, berth_rows_at(&to, row), width, BERTH_DTYPE_F32);
        } else if (y->dtype == BERTH_DTYPE_BF16) {
            scale_row(x, by, berth_rows_at(&to, row), width, BERTH_DTYPE_BF16);
        } else {
            scale_row(x, by, berth_rows_at(&to, row), width, BERTH_DTYPE_F16);
        }
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return berth_run_rows(self, args, scale_part, args->outputs[0]);
}

const berth_op_impl berth_kernel_scale_rows = {
    .size = sizeof(berth_op_impl),
    .op = "scale_rows",
    .name = "cpu.scale_rows",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
