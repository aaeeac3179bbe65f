// SPDX-License-Identifier: Apache-2.0
// dequantize: row by row, pieces of groups.
#include <cpu/cpu.h>

#include <codes.h>

enum { X, SCALE };

#define PIECE 256 // columns at a time

static void scale_group(berth_dtype dtype, const void *codes, float by, float *y, int64_t count) {
    if (dtype == BERTH_DTYPE_I8) {
        for (int64_t i = 0; i < count; ++i) {
            y[i] = (float)((const int8_t *)codes)[i] * by;
        }
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        y[i] = berth_from_f8(((const uint8_t *)codes)[i]) * by;
    }
}

static void dequantize_row(const berth_op_args *args, int64_t row) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scale = args->inputs[SCALE];
    const int64_t width = berth_row_length(x);
    const int64_t group = width / berth_row_length(scale);
    const berth_dtype dtype = args->outputs[0]->dtype;
    const uint8_t *codes = berth_row(x, row);
    void *to = berth_row(args->outputs[0], row);
    const float *by = berth_row(scale, berth_row_count(scale) == 1 ? 0 : row);
    for (int64_t i = 0, count = 0; i < width; i += count) {
        const int64_t left = group - i % group;
        float numbers[PIECE];
        count = left < PIECE ? left : PIECE;
        scale_group(x->dtype, codes + i, by[i / group], numbers, count);
        berth_store(to, dtype, i, count, numbers);
    }
}

static void dequantize_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_span rows = berth_share(berth_row_count(args->inputs[X]), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        dequantize_row(args, row);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return berth_run_rows(self, args, dequantize_part, args->inputs[X]);
}

const berth_op_impl berth_kernel_dequantize = {
    .size = sizeof(berth_op_impl),
    .op = "dequantize",
    .name = "cpu.dequantize",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 2,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
