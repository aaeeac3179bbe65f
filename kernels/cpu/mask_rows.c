// SPDX-License-Identifier: Apache-2.0
// mask_rows: a row is copied or cleared as bytes.
#include <cpu/cpu.h>

enum { X, MASK };

static void mask_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *x = args->inputs[X];
    const uint8_t *mask = berth_data(args->inputs[MASK]);
    const berth_rows from = berth_rows_of(x);
    const berth_rows to = berth_rows_of(args->outputs[0]);
    const size_t bytes = (size_t)berth_row_length(x) * BERTH_DTYPE_BITS(x->dtype) / 8;
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        void *y = berth_rows_at(&to, row);
        if (mask[row]) {
            memset(y, 0, bytes);
        } else {
            memcpy(y, berth_rows_at(&from, row), bytes);
        }
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return berth_run_rows(self, args, mask_part, args->outputs[0]);
}

const berth_op_impl berth_kernel_mask_rows = {
    .size = sizeof(berth_op_impl),
    .op = "mask_rows",
    .name = "cpu.mask_rows",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
