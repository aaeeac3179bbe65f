// SPDX-License-Identifier: Apache-2.0
// select_rows: one copy for a row.
#include <cpu/cpu.h>

enum { X, ROWS };

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    if (site->inputs[X]->ndim != 2) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "'x' has not 2 dimensions");
    }
    return berth_supports_same(site, device);
}

static int64_t row_at(const berth_op_args *args, int64_t index) {
    const berth_tensor *rows = args->inputs[ROWS];
    return berth_integer_at(berth_data(rows), rows->dtype, index);
}

static void copy_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *y = args->outputs[0];
    const size_t bytes = (size_t)y->shape[1] * BERTH_DTYPE_BITS(y->dtype) / 8;
    const berth_span rows = berth_share(y->shape[0], part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        memcpy(berth_row(y, row), berth_row(args->inputs[X], row_at(args, row)), bytes);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const berth_instance *self = state;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    for (int64_t row = 0; row < y->shape[0]; ++row) {
        const int64_t from = row_at(args, row);
        if (from < 0 || from >= x->shape[0]) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "select_rows: row %lld of %lld", (long long)from,
                                     (long long)x->shape[0]);
        }
    }
    berth_run(self->cpu, copy_part, args, y->shape[0] * y->shape[1]);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_select_rows = {
    .size = sizeof(berth_op_impl),
    .op = "select_rows",
    .name = "cpu.select_rows",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
