// SPDX-License-Identifier: Apache-2.0
// argmax: the largest element of a piece at a time, in vectors; only the piece that raised it last
// is looked through for its column.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <math.h>

#define PIECE (64 * BERTH_LANES)

BERTH_INLINE float largest_as(const void *row, berth_dtype dtype, berth_span columns) {
    berth_vec largest[2] = {berth_vec_of(-INFINITY), berth_vec_of(-INFINITY)};
    int64_t i = columns.first;
    for (; i + 2 * BERTH_LANES <= columns.end; i += 2 * BERTH_LANES) {
        BERTH_UNROLL
        for (int k = 0; k < 2; ++k) { // a NaN is none
            largest[k] =
                berth_vec_max(berth_vec_load_as(row, dtype, i + k * BERTH_LANES), largest[k]);
        }
    }
    float value = berth_vec_largest(berth_vec_max(largest[0], largest[1]));
    for (; i < columns.end; ++i) {
        const float x = berth_load_at(row, dtype, i);
        value = x > value ? x : value;
    }
    return value;
}

static float largest_of(const void *row, berth_dtype dtype, berth_span columns) {
    return dtype == BERTH_DTYPE_F32    ? largest_as(row, BERTH_DTYPE_F32, columns)
           : dtype == BERTH_DTYPE_BF16 ? largest_as(row, BERTH_DTYPE_BF16, columns)
                                       : largest_as(row, BERTH_DTYPE_F16, columns);
}

static int32_t find_largest(const void *row, berth_dtype dtype, int64_t width) {
    float largest = -INFINITY;
    int64_t column = 0;
    for (int64_t first = 0; first < width; first += PIECE) {
        const berth_span piece = {first, first + PIECE < width ? first + PIECE : width};
        const float value = largest_of(row, dtype, piece);
        if (value > largest) {
            largest = value;
            column = first;
        }
    }
    if (!isfinite(largest)) {
        return -1;
    }
    while (berth_load_at(row, dtype, column) != largest) {
        ++column;
    }
    return (int32_t)column;
}

static void argmax_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *x = args->inputs[0];
    int32_t *y = berth_data(args->outputs[0]);
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        y[row] = find_largest(berth_row(x, row), x->dtype, berth_row_length(x));
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return berth_run_rows(self, args, argmax_part, args->inputs[0]);
}

const berth_op_impl berth_kernel_argmax = {
    .size = sizeof(berth_op_impl),
    .op = "argmax",
    .name = "cpu.argmax",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
