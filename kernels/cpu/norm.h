// SPDX-License-Identifier: Apache-2.0
// What norms but rms_norm do with all rows of a call (norm_source.h, norm_row.h, norm_sums.h,
// norm_write.h), and what their tables have in common.
#ifndef BERTH_KERNELS_CPU_NORM_H
#define BERTH_KERNELS_CPU_NORM_H

#include <cpu/norm_source.h>

// Whether rows of a kind may come by fours, past the caches: not in portable C, which has no stores
// for that.
BERTH_INLINE int berth_norm_is_fast(berth_norm_kind as) {
    return BERTH_LANES > 4 && as.dtype != BERTH_DTYPE_F16 && as.vectors == as.dtype;
}

// Whether those of a call may: in whole steps, with no copy of a weight.
static inline int berth_norm_has_fours(const berth_norm_job *in) {
    const berth_norm *self = in->self;
    const berth_tensor *weight = berth_norm_input(in, in->operands->weight);
    const int has_copies = weight && weight->dtype != in->args->inputs[0]->dtype;
    return in->is_past && !(self->weight_rows > 0 && has_copies) &&
           berth_norm_group_of(self) % BERTH_NORM_STEP == 0;
}

static inline int berth_norm_can_pass(const berth_norm_rows *of) {
    int can_pass = 1;
    for (int i = 0; i < BERTH_NORM_ROWS; ++i) {
        const void *sum = of->next[i].sum;
        can_pass &= berth_vec_can_pass(of->now[i].y) && (!sum || berth_vec_can_pass(sum));
    }
    return can_pass;
}

// The next rows become those that are written, and rows from `at` on the next ones.
static inline void berth_norm_advance(berth_norm_rows *of, const berth_norm_source *from,
                                      int64_t at) {
    for (int i = 0; i < BERTH_NORM_ROWS; ++i) {
        const berth_norm_row done = of->now[i];
        of->now[i] = of->next[i];
        of->next[i] = done;
        berth_norm_point(&of->next[i], from, at + i);
    }
}

// Rows by fours as long as there are so many; returns the first that is not done.
BERTH_INLINE int64_t berth_norm_fours(berth_norm_rows *of, const berth_norm_source *from,
                                      berth_norm_form form, berth_norm_kind as, berth_span rows) {
    const berth_norm_kind past = {as.dtype, as.vectors, 1};
    int64_t i = rows.first;
    for (; i + BERTH_NORM_ROWS <= rows.end; i += BERTH_NORM_ROWS) {
        berth_norm_advance(of, from, i);
        if (i > rows.first && berth_norm_can_pass(of)) {
            berth_norm_both(of, past, form);
            continue;
        }
        for (int k = 0; k < BERTH_NORM_ROWS; ++k) {
            if (i > rows.first) {
                berth_norm_write(&of->now[k], as, form);
            }
            berth_norm_measure(&of->next[k], as, form);
        }
    }
    for (int k = 0; k < BERTH_NORM_ROWS && i > rows.first; ++k) {
        berth_norm_write(&of->next[k], as, form);
    }
    berth_past_end();
    return i;
}

BERTH_INLINE void berth_norm_part_as(const berth_norm_job *in, berth_norm_form form,
                                     berth_norm_kind as, int64_t part, int64_t parts) {
    const berth_span rows = berth_share(berth_row_count(in->args->inputs[0]), part, parts);
    berth_norm_source from;
    berth_norm_rows at;
    int64_t i = rows.first;
    if (i == rows.end) {
        return;
    }
    berth_norm_begin(in, part, as.vectors, &from, &at);
    if (berth_norm_is_fast(as) && berth_norm_has_fours(in)) {
        i = berth_norm_fours(&at, &from, form, as, rows);
    }
    for (; i < rows.end; ++i) {
        berth_norm_point(&at.now[0], &from, i);
        berth_norm_measure(&at.now[0], as, form);
        berth_norm_write(&at.now[0], as, form);
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

// A part of the rows; `form` is constant where this is inlined.
BERTH_INLINE void berth_norm_part(const berth_norm_job *in, berth_norm_form form, int64_t part,
                                  int64_t parts) {
    const berth_dtype dtype = in->args->inputs[0]->dtype;
    const int is_same = berth_norm_vectors_of(in) == dtype;
    const berth_dtype f32 = BERTH_DTYPE_F32;
    const berth_dtype bf16 = BERTH_DTYPE_BF16;
    const berth_dtype f16 = BERTH_DTYPE_F16;
    if (dtype == f32) {
        berth_norm_part_as(in, form, (berth_norm_kind){f32, f32, 0}, part, parts);
    } else if (dtype == bf16 && is_same) {
        berth_norm_part_as(in, form, (berth_norm_kind){bf16, bf16, 0}, part, parts);
    } else if (dtype == bf16) {
        berth_norm_part_as(in, form, (berth_norm_kind){bf16, f32, 0}, part, parts);
    } else if (is_same) {
        berth_norm_part_as(in, form, (berth_norm_kind){f16, f16, 0}, part, parts);
    } else {
        berth_norm_part_as(in, form, (berth_norm_kind){f16, f32, 0}, part, parts);
    }
}

// What `take` gives is the result, for a kernel that can do without a norm.
BERTH_INLINE void berth_norm_map(const berth_norm_job *in, berth_norm_take take, int64_t part,
                                 int64_t parts) {
    const berth_span rows = berth_share(berth_row_count(in->args->inputs[0]), part, parts);
    const berth_norm_kind as = {.dtype = in->args->inputs[0]->dtype};
    berth_norm_source from;
    berth_norm_rows at;
    berth_norm_begin(in, part, BERTH_DTYPE_F32, &from, &at);
    for (int64_t i = rows.first; i < rows.end; ++i) {
        const berth_norm_row *row = &at.now[0];
        berth_norm_point(&at.now[0], &from, i);
        for (int64_t first = 0; first < row->hidden; first += BERTH_LANES) {
            const berth_norm_at here = {BERTH_NORM_SINGLE, first, row->hidden};
            berth_vec_store_some(row->y, as.dtype, first, row->hidden, take(row, as, here));
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
        .is_past = berth_is_past(elements, x->dtype),
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
