// SPDX-License-Identifier: Apache-2.0
// What activations share: the sweep over rows (activation.h has the instance, sweep.h what a loop
// does beside its formula). A kernel is its formula (functions.h, gelu.h and near.h have what it is
// made of) and a table.
//
// A formula gets vectors of floats, the numbers that its create kept, and the dtype of the result
// as a constant. All is computed in float32; the one rounding is the store's, where a formula does
// not ask for more. A NaN goes through.
#ifndef BERTH_KERNELS_CPU_ELEMENTWISE_H
#define BERTH_KERNELS_CPU_ELEMENTWISE_H

#include <cpu/near.h>
#include <cpu/sweep.h>

// ---- rows ---------------------------------------------------------------------------------------

typedef struct berth_sweep_bf16 {
    const uint16_t *x;
    uint16_t *y;
    int64_t width;
} berth_sweep_bf16;

// The part of a row that is whole vectors of pairs; returns its length. Why pairs: taking them
// apart and putting them together costs half of what widening and narrowing does.
BERTH_INLINE int64_t berth_sweep_pairs(const berth_activation *self, berth_vec_formula formula,
                                       berth_sweep_kind as, berth_sweep_bf16 row) {
    const berth_vec zero = berth_vec_of(0);
    int64_t first = 0;
    for (; first + 2 * BERTH_LANES <= row.width; first += 2 * BERTH_LANES) {
        berth_sweep_fetch(as, row.x, row.y, first, row.width);
        const berth_vec a = berth_vec_load(row.x + first);
        const berth_vec b = as.is_gated ? berth_vec_load(row.x + row.width + first) : zero;
        const berth_vec one = formula(self, as.dtype, berth_vec_first_of(a), berth_vec_first_of(b));
        const berth_vec two =
            formula(self, as.dtype, berth_vec_second_of(a), berth_vec_second_of(b));
        const berth_vec y = berth_sweep_pairs_of(as, one, two);
        if (as.is_past) {
            berth_vec_store_past(row.y + first, y);
        } else {
            berth_vec_store((float *)(void *)(row.y + first), y);
        }
    }
    return first;
}

BERTH_INLINE void berth_sweep_any_row(const berth_sweep *in, berth_vec_formula formula,
                                      berth_sweep_kind as, const void *x, void *y) {
    const berth_activation self = *in->self; // no store changes it, for all that the compiler knows
    const int64_t width = in->width;
    const berth_vec zero = berth_vec_of(0);
    int64_t first = 0;
    if (as.dtype == BERTH_DTYPE_BF16) {
        first = berth_sweep_pairs(&self, formula, as, (berth_sweep_bf16){x, y, width});
    }
    for (; first + BERTH_LANES <= width; first += BERTH_LANES) {
        berth_sweep_fetch(as, x, y, first, width);
        const berth_vec a = berth_vec_load_as(x, as.dtype, first);
        const berth_vec b = as.is_gated ? berth_vec_load_as(x, as.dtype, width + first) : zero;
        berth_sweep_store(as, y, first, formula(&self, as.dtype, a, b));
    }
    const int64_t rest = width - first;
    if (rest > 0) {
        const berth_vec a = berth_vec_load_part(x, as.dtype, first, rest);
        const berth_vec b =
            as.is_gated ? berth_vec_load_part(x, as.dtype, width + first, rest) : zero;
        berth_vec_store_part(y, as.dtype, first, rest, formula(&self, as.dtype, a, b));
    }
}

BERTH_INLINE void berth_sweep_unary_row(const berth_sweep *in, berth_vec_formula formula,
                                        berth_sweep_kind as, const void *x, void *y) {
    as.is_gated = 0;
    berth_sweep_any_row(in, formula, as, x, y);
}

BERTH_INLINE void berth_sweep_gated_row(const berth_sweep *in, berth_vec_formula formula,
                                        berth_sweep_kind as, const void *x, void *y) {
    as.is_gated = 1;
    berth_sweep_any_row(in, formula, as, x, y);
}

// Of formulas that are exact but for the rounding.
BERTH_INLINE void berth_sweep_exact_unary_row(const berth_sweep *in, berth_vec_formula formula,
                                              berth_sweep_kind as, const void *x, void *y) {
    as.is_exact = 1;
    berth_sweep_unary_row(in, formula, as, x, y);
}

BERTH_INLINE void berth_sweep_exact_gated_row(const berth_sweep *in, berth_vec_formula formula,
                                              berth_sweep_kind as, const void *x, void *y) {
    as.is_exact = 1;
    berth_sweep_gated_row(in, formula, as, x, y);
}

typedef void (*berth_sweep_row)(const berth_sweep *in, berth_vec_formula formula,
                                berth_sweep_kind as, const void *x, void *y);

BERTH_INLINE void berth_sweep_rows(const berth_sweep *in, berth_sweep_row row,
                                   berth_vec_formula formula, berth_sweep_kind as,
                                   berth_span rows) {
    const berth_rows from = berth_rows_of(in->args->inputs[0]);
    const berth_rows to = berth_rows_of(in->args->outputs[0]);
    berth_sweep_kind plain = as;
    plain.is_past = 0;
    for (int64_t i = rows.first; i < rows.end; ++i) {
        const void *x = berth_rows_at(&from, i);
        void *y = berth_rows_at(&to, i);
        if (as.is_past && berth_vec_can_pass(y)) {
            row(in, formula, as, x, y);
        } else {
            row(in, formula, plain, x, y);
        }
    }
}

BERTH_INLINE void berth_sweep_as(const berth_sweep *in, berth_sweep_row row,
                                 berth_vec_formula formula, berth_sweep_kind as, berth_span rows) {
    if (in->is_past) {
        as.is_past = 1;
        berth_sweep_rows(in, row, formula, as, rows);
        berth_past_end();
    } else {
        berth_sweep_rows(in, row, formula, as, rows);
    }
}

// A part's rows; `row` and `formula` are constants where this is inlined.
BERTH_INLINE void berth_sweep_part(const berth_sweep *in, berth_sweep_row row,
                                   berth_vec_formula formula, berth_span rows) {
    const berth_dtype dtype = in->args->outputs[0]->dtype;
    const berth_sweep_kind f32 = {.dtype = BERTH_DTYPE_F32};
    const berth_sweep_kind bf16 = {.dtype = BERTH_DTYPE_BF16};
    const berth_sweep_kind joined = {.dtype = BERTH_DTYPE_BF16, .is_joined = 1};
    const berth_sweep_kind f16 = {.dtype = BERTH_DTYPE_F16};
    if (dtype == BERTH_DTYPE_F32) {
        berth_sweep_as(in, row, formula, f32, rows);
    } else if (dtype == BERTH_DTYPE_BF16 && berth_vec_has_dot()) {
        berth_sweep_as(in, row, formula, joined, rows);
    } else if (dtype == BERTH_DTYPE_BF16) {
        berth_sweep_as(in, row, formula, bf16, rows);
    } else {
        berth_sweep_as(in, row, formula, f16, rows);
    }
}

#define BERTH_SWEEP_COST 4 // an e^x is worth many copies

static inline berth_status berth_sweep_run(void *self, const berth_op_args *args,
                                           berth_work_fn part) {
    const berth_tensor *y = args->outputs[0];
    const int64_t width = berth_row_length(y);
    const int64_t elements = berth_row_count(y) * width;
    const berth_sweep in = {
        .self = self,
        .args = args,
        .width = width,
        .is_past = berth_is_past(elements, y->dtype),
    };
    berth_run(in.self->cpu, part, &in, BERTH_SWEEP_COST * elements);
    return BERTH_OK;
}

BERTH_INLINE berth_vec berth_formula_gelu_tanh(const berth_activation *self, berth_dtype dtype,
                                               berth_vec x, berth_vec unused) {
    (void)self;
    (void)unused;
    return berth_vec_gelu_tanh_as(dtype, x);
}

// The part and the forward of a kernel of that formula: `shape` is unary or gated.
#define BERTH_SWEEP(shape, formula)                                                                \
    static void part_of(const void *work, int64_t part, int64_t parts) {                           \
        const berth_sweep *in = work;                                                              \
        berth_sweep_part(in, berth_sweep_##shape##_row, formula,                                   \
                         berth_share(berth_row_count(in->args->outputs[0]), part, parts));         \
    }                                                                                              \
    BERTH_SWEEP_FORWARD

// Of two formulas, the first where the flag is set. One that asks would keep the numbers of both.
#define BERTH_SWEEP_EITHER(shape, flagged, other)                                                  \
    BERTH_SWEEP_PART(shape, flagged, other)                                                        \
    BERTH_SWEEP_FORWARD

#define BERTH_SWEEP_PART(shape, flagged, other)                                                    \
    static void part_of(const void *work, int64_t part, int64_t parts) {                           \
        const berth_sweep *in = work;                                                              \
        const berth_span rows = berth_share(berth_row_count(in->args->outputs[0]), part, parts);   \
        if (in->self->flag) {                                                                      \
            berth_sweep_part(in, berth_sweep_##shape##_row, flagged, rows);                        \
        } else {                                                                                   \
            berth_sweep_part(in, berth_sweep_##shape##_row, other, rows);                          \
        }                                                                                          \
    }

#define BERTH_SWEEP_FORWARD                                                                        \
    static berth_status forward(void *self, const berth_op_args *args) {                           \
        return berth_sweep_run(self, args, part_of);                                               \
    }

// What the table of an activation's kernel begins with.
#define BERTH_ACTIVATION_KERNEL(op_name, op_create)                                                \
    .size = sizeof(berth_op_impl), .op = (op_name), .name = "cpu." op_name,                        \
    .dispatch_key = BERTH_DISPATCH_CPU, .flags = BERTH_IMPL_DETERMINISTIC,                         \
    .supports = berth_supports_same, .create = (op_create), .forward = forward,                    \
    .destroy = berth_instance_free

#endif
