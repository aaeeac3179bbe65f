// SPDX-License-Identifier: Apache-2.0
// cast: row by row, the same dtype by copying.
#include <cpu/cpu.h>
#include <cpu/simd.h>

static void cast_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const berth_rows from = berth_rows_of(x);
    const berth_rows to = berth_rows_of(y);
    const berth_span rows = berth_share(berth_row_count(y), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        berth_vec_copy(berth_rows_at(&to, row), y->dtype, berth_rows_at(&from, row), x->dtype,
                       berth_row_length(y));
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return berth_run_rows(self, args, cast_part, args->outputs[0]);
}

const berth_op_impl berth_kernel_cast = {
    .size = sizeof(berth_op_impl),
    .op = "cast",
    .name = "cpu.cast",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
