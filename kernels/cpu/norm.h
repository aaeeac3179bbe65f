// SPDX-License-Identifier: Apache-2.0
// What norms do with all rows of a call (norm_source.h, norm_row.h, norm_sums.h, norm_write.h), and
// what their tables have in common.
#ifndef BERTH_KERNELS_CPU_NORM_H
#define BERTH_KERNELS_CPU_NORM_H

#include <cpu/norm_source.h>

// Whether rows of a kind may be written past the caches: not in portable C, which has no stores for
// that.
BERTH_INLINE int berth_norm_is_fast(berth_norm_kind as) {
    return BERTH_LANES > 4 && as.dtype != BERTH_DTYPE_F16 && as.vectors == as.dtype;
}

static inline int berth_norm_rows_can_pass(const berth_rows *rows) {
    return rows->is_even && berth_vec_can_pass(rows->first) &&
           rows->step % (int64_t)sizeof(berth_vec) == 0;
}

static inline int berth_norm_can_pass(const berth_norm_source *of, int64_t group) {
    return group % BERTH_NORM_STEP == 0 && berth_norm_rows_can_pass(&of->y) &&
           berth_norm_rows_can_pass(&of->sum);
}

// Each row is measured while the one before it is written. Why only where there is a gate: without
// one the row and its weights are what fills the first cache, and two sweeps over it are faster.
BERTH_INLINE void berth_norm_pass_rows(const berth_norm_source *from, berth_norm_row *any,
                                       berth_norm_kind as, berth_norm_form form, berth_span rows) {
    berth_norm_row pair[2] = {*any, *any};
    berth_norm_row *last = &pair[rows.first % 2];
    berth_norm_point(last, from, rows.first);
    berth_norm_measure(last, as, form);
    for (int64_t i = rows.first + 1; i < rows.end; ++i) {
        berth_norm_row *row = &pair[i % 2];
        berth_norm_point(row, from, i);
        berth_norm_pass(last, row, as, form);
        last = row;
    }
    berth_norm_write(last, as, form);
    berth_past_end();
}

// Each row is measured, then written.
BERTH_INLINE void berth_norm_rows(const berth_norm_source *from, berth_norm_row *row,
                                  berth_norm_kind as, berth_norm_form form, berth_span rows) {
    for (int64_t i = rows.first; i < rows.end; ++i) {
        berth_norm_point(row, from, i);
        berth_norm_measure(row, as, form);
        // Why: a row, its weight and its bias fill the first cache, and what it has of them is what
        // was used last. Why not without a bias: gemma_rms_norm has 0.86 of a copy's speed in turns
        // and 0.99 in one direction.
        row->is_backward = as.is_ahead && row->bias && i % 2 != 0;
        berth_norm_write(row, as, form);
    }
    berth_past_end();
}

// Many rows. Why not past the caches in place: such a store waits until the line has left them;
// rms_norm has 0.75 of a copy's speed with it, and 1.4 where the line stays and is changed.
BERTH_INLINE void berth_norm_many_rows(const berth_norm_source *from, berth_norm_row *row,
                                       berth_norm_kind as, berth_norm_form form, berth_span rows) {
    as.is_ahead = 1;
    if (form.is_gated) {
        berth_norm_pass_rows(from, row, as, form, rows);
    } else if (from->x.first == from->y.first) {
        berth_norm_rows(from, row, as, form, rows);
    } else {
        as.is_past = 1;
        berth_norm_rows(from, row, as, form, rows);
    }
}

BERTH_INLINE void berth_norm_part_as(const berth_norm_job *in, berth_norm_form form,
                                     berth_norm_kind as, int64_t part, int64_t parts) {
    const berth_span rows = berth_share(berth_row_count(in->args->inputs[0]), part, parts);
    berth_norm_source from;
    berth_norm_row row;
    if (rows.first == rows.end) {
        return;
    }
    berth_norm_begin(in, part, as.vectors, &from, &row);
    if (berth_norm_is_fast(as) && in->is_past && berth_norm_can_pass(&from, row.group)) {
        berth_norm_many_rows(&from, &row, as, form, rows);
    } else {
        as.is_near = as.dtype != BERTH_DTYPE_F16;
        berth_norm_rows(&from, &row, as, form, rows);
    }
}

// Float32 where weight and bias are not both of x's dtype.
static inline berth_dtype berth_norm_vectors_of(const berth_norm_job *in) {
    const berth_dtype dtype = in->args->inputs[0]->dtype;
    const berth_tensor *weight = berth_norm_input(in, in->operands->weight);
    const berth_tensor *bias = berth_norm_input(in, in->operands->bias);
    const int is_same = (!weight || weight->dtype == dtype) && (!bias || bias->dtype == dtype);
    return is_same ? dtype : BERTH_DTYPE_F32;
}

BERTH_INLINE berth_norm_kind berth_norm_kind_of(berth_dtype dtype, berth_dtype vectors) {
    return (berth_norm_kind){.dtype = dtype, .vectors = vectors};
}

// A part of the rows; `form` is constant where this is inlined.
BERTH_INLINE void berth_norm_part(const berth_norm_job *in, berth_norm_form form, int64_t part,
                                  int64_t parts) {
    const berth_dtype dtype = in->args->inputs[0]->dtype;
    const int is_same = berth_norm_vectors_of(in) == dtype;
    const berth_dtype f32 = BERTH_DTYPE_F32;
    const berth_dtype bf16 = BERTH_DTYPE_BF16;
    const berth_dtype f16 = BERTH_DTYPE_F16;
    const berth_norm_kind joined = {.dtype = bf16, .vectors = bf16, .is_joined = 1};
    if (dtype == f32) {
        berth_norm_part_as(in, form, berth_norm_kind_of(f32, f32), part, parts);
    } else if (dtype == bf16 && is_same && berth_vec_has_dot()) {
        berth_norm_part_as(in, form, joined, part, parts);
    } else if (dtype == bf16 && is_same) {
        berth_norm_part_as(in, form, berth_norm_kind_of(bf16, bf16), part, parts);
    } else if (dtype == bf16) {
        berth_norm_part_as(in, form, berth_norm_kind_of(bf16, f32), part, parts);
    } else if (is_same) {
        berth_norm_part_as(in, form, berth_norm_kind_of(f16, f16), part, parts);
    } else {
        berth_norm_part_as(in, form, berth_norm_kind_of(f16, f32), part, parts);
    }
}

// What `take` gives is the result, for a kernel that can do without a norm.
BERTH_INLINE void berth_norm_map(const berth_norm_job *in, berth_norm_take take, int64_t part,
                                 int64_t parts) {
    const berth_span rows = berth_share(berth_row_count(in->args->inputs[0]), part, parts);
    const berth_norm_kind as = {.dtype = in->args->inputs[0]->dtype};
    berth_norm_source from;
    berth_norm_row row;
    berth_norm_begin(in, part, BERTH_DTYPE_F32, &from, &row);
    for (int64_t i = rows.first; i < rows.end; ++i) {
        berth_norm_point(&row, &from, i);
        for (int64_t first = 0; first < row.hidden; first += BERTH_LANES) {
            const berth_norm_at here = {BERTH_NORM_SINGLE, first, row.hidden};
            berth_vec_store_some(row.y, as.dtype, first, row.hidden, take(&row, as, here));
        }
    }
}

static inline berth_status berth_norm_run(const berth_norm *self, const berth_op_args *args,
                                          const berth_norm_operands *operands, berth_work_fn part) {
    const berth_tensor *x = args->inputs[0];
    const int64_t elements = berth_row_count(x) * berth_row_length(x);
    const berth_norm_job in = {
        .self = self,
        .args = args,
        .operands = operands,
        .is_past = berth_is_past(elements, x->dtype) && self->measured == 0,
    };
    berth_run(self->cpu, part, &in, 2 * elements);
    return BERTH_OK;
}

// The forward of a kernel whose parts `part_of` does; `operands` says what its rows are made of.
#define BERTH_NORM_FORWARD(operands)                                                               \
    static berth_status forward(void *self, const berth_op_args *args) {                           \
        return berth_norm_run(self, args, &(operands), part_of);                                   \
    }

// The part and the forward of a kernel of one form.
#define BERTH_NORM(form, operands)                                                                 \
    static void part_of(const void *work, int64_t part, int64_t parts) {                           \
        berth_norm_part(work, form, part, parts);                                                  \
    }                                                                                              \
    BERTH_NORM_FORWARD(operands)

// Of two forms, the first where a question about the job `in` is answered with yes.
#define BERTH_NORM_EITHER(question, yes, no, operands)                                             \
    static void part_of(const void *work, int64_t part, int64_t parts) {                           \
        const berth_norm_job *in = work;                                                           \
        if (question) {                                                                            \
            berth_norm_part(in, yes, part, parts);                                                 \
        } else {                                                                                   \
            berth_norm_part(in, no, part, parts);                                                  \
        }                                                                                          \
    }                                                                                              \
    BERTH_NORM_FORWARD(operands)

#define BERTH_NORM_KERNEL(op_name, op_create)                                                      \
    .size = sizeof(berth_op_impl), .op = (op_name), .name = "cpu." op_name,                        \
    .dispatch_key = BERTH_DISPATCH_CPU, .flags = BERTH_IMPL_DETERMINISTIC, .create = (op_create),  \
    .workspace = berth_norm_workspace, .forward = forward, .destroy = berth_instance_free

#endif
