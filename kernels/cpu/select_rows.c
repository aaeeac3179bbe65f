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

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *rows = args->inputs[ROWS];
    const berth_tensor *y = args->outputs[0];
    const size_t bytes = (size_t)y->shape[1] * BERTH_DTYPE_BITS(y->dtype) / 8;
    for (int64_t r = 0; r < y->shape[0]; ++r) {
        const int64_t from = berth_integer_at(berth_data(rows), rows->dtype, r);
        if (from < 0 || from >= x->shape[0]) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "select_rows: row %lld of %lld", (long long)from,
                                     (long long)x->shape[0]);
        }
        memcpy(berth_row(y, r), berth_row(x, from), bytes);
    }
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
    .forward = forward,
};
