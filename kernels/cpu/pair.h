// SPDX-License-Identifier: Apache-2.0
// What add and mul share: two operands of one dtype and shape, element by element, one rounding.
#ifndef BERTH_KERNELS_CPU_PAIR_H
#define BERTH_KERNELS_CPU_PAIR_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

typedef berth_vec (*pair_formula)(berth_vec a, berth_vec b);

// A row of each operand and of the result.
typedef struct pair_row {
    const void *a;
    const void *b;
    void *y;
    int64_t width;
} pair_row;

BERTH_INLINE void pair_row_as(const pair_row *row, berth_dtype dtype, pair_formula formula) {
    for (int64_t i = 0; i < row->width; i += BERTH_LANES) {
        const berth_vec a = berth_vec_load_some(row->a, dtype, i, row->width);
        const berth_vec b = berth_vec_load_some(row->b, dtype, i, row->width);
        berth_vec_store_some(row->y, dtype, i, row->width, formula(a, b));
    }
}

// A part's rows; `formula` is constant where this is inlined.
BERTH_INLINE void pair_part(const berth_op_args *args, berth_span rows, pair_formula formula) {
    const berth_rows a = berth_rows_of(args->inputs[0]);
    const berth_rows b = berth_rows_of(args->inputs[1]);
    const berth_rows y = berth_rows_of(args->outputs[0]);
    const berth_dtype dtype = args->outputs[0]->dtype;
    pair_row row = {.width = berth_row_length(args->outputs[0])};
    for (int64_t i = rows.first; i < rows.end; ++i) {
        row.a = berth_rows_at(&a, i);
        row.b = berth_rows_at(&b, i);
        row.y = berth_rows_at(&y, i);
        if (dtype == BERTH_DTYPE_F32) {
            pair_row_as(&row, BERTH_DTYPE_F32, formula);
        } else if (dtype == BERTH_DTYPE_BF16) {
            pair_row_as(&row, BERTH_DTYPE_BF16, formula);
        } else {
            pair_row_as(&row, BERTH_DTYPE_F16, formula);
        }
    }
}

// The kernel of an op whose file defines the formula `combine`.
#define PAIR_KERNEL(op_name)                                                                       \
    static void part_of(const void *work, int64_t part, int64_t parts) {                           \
        const berth_op_args *args = work;                                                          \
        pair_part(args, berth_share(berth_row_count(args->outputs[0]), part, parts), combine);     \
    }                                                                                              \
    static berth_status forward(void *self, const berth_op_args *args) {                           \
        return berth_run_rows(self, args, part_of, args->outputs[0]);                              \
    }                                                                                              \
    const berth_op_impl berth_kernel_##op_name = {                                                 \
        .size = sizeof(berth_op_impl),                                                             \
        .op = #op_name,                                                                            \
        .name = "cpu." #op_name,                                                                   \
        .dispatch_key = BERTH_DISPATCH_CPU,                                                        \
        .revision = 1,                                                                             \
        .flags = BERTH_IMPL_DETERMINISTIC | BERTH_IMPL_IN_PLACE,                                   \
        .create = berth_instance_create,                                                           \
        .forward = forward,                                                                        \
        .destroy = berth_instance_free,                                                            \
    }

#endif
