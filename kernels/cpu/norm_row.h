// SPDX-License-Identifier: Apache-2.0
// A row of a norm: its operands, what is loaded and stored of it. A kernel says how a value comes
// about and what becomes of it; all in float32. A row is read twice: norm_sums.h takes its mean and
// its mean of squares, norm_write.h makes the result of them.
//
// Columns go in steps of four vectors, which are two pairs, and what is left of a span of columns
// by single vectors. Why pairs: of bf16 they are the two halves of one load, all even columns and
// all odd ones.
#ifndef BERTH_KERNELS_CPU_NORM_ROW_H
#define BERTH_KERNELS_CPU_NORM_ROW_H

#include <cpu/cpu.h>
#include <cpu/fetch.h>
#include <cpu/functions.h>

#define BERTH_NORM_PAIR (2 * BERTH_LANES) // columns
#define BERTH_NORM_STEP (4 * BERTH_LANES)

// Begins as berth_instance does.
typedef struct berth_norm {
    const berth_host *host;
    const berth_cpu *cpu;
    float eps;
    int64_t hidden;      // columns
    int64_t group;       // of one mean; 0: all
    int64_t options;     // the kernel's own
    int64_t measured;    // columns of the mean of squares, the first ones; 0: all
    int64_t weight_rows; // of x so many rows in turn have one of the weight; 0: all have the same
} berth_norm;

// One row of each operand, NULL where absent. `gate` has x's dtype.
typedef struct berth_norm_row {
    const berth_norm *self;
    int64_t hidden;
    int64_t group; // columns, all of them where the row is one
    const void *x;
    const void *gate;
    const void *weight;
    const void *bias;
    float *values;  // [hidden], of a form that keeps what it takes
    float *factors; // [groups]
    float mean;     // that is taken off, 0 of a row that was not measured
    void *sum;      // where x + gate goes, for a gate that is a residual; it may be the gate
    void *y;
    berth_ahead ahead; // from here to the row that is fetched while this one is written
    int is_backward;   // written from its end to its start
} berth_norm_row;

// What a row's loop is compiled for.
typedef struct berth_norm_kind {
    berth_dtype dtype;   // of x, gate, sum and y
    berth_dtype vectors; // of weight and bias: that, or float32
    int is_joined;       // bf16 is rounded by the machine
    int is_ahead;        // a later row is fetched while one is written
    int is_past;         // y and sum are stored past the caches
    int is_exact;        // subnormal numbers that are stored stay what they are
    int is_near;         // what is written and multiplied by is fetched while a row is measured
} berth_norm_kind;

// Where a vector stands: one of a pair from `first` on, or a single one, whose lanes from `end` on
// are zero and not stored. Constant but for the numbers.
typedef enum berth_norm_half { BERTH_NORM_LOW, BERTH_NORM_HIGH, BERTH_NORM_SINGLE } berth_norm_half;
typedef struct berth_norm_at {
    berth_norm_half half;
    int64_t first;
    int64_t end;
} berth_norm_at;

// What stands there in a row before its norm.
typedef berth_vec (*berth_norm_take)(const berth_norm_row *row, berth_norm_kind as,
                                     berth_norm_at at);
// The same after it, times what the kernel multiplies by.
typedef berth_vec (*berth_norm_give)(const berth_norm_row *row, berth_norm_kind as,
                                     berth_norm_at at, berth_vec normal);

// What a kernel is made of; constants where they are inlined.
typedef struct berth_norm_form {
    berth_norm_take take;
    berth_norm_give give;
    int is_gated;   // a row may have a gate: a row is written while the next one is measured
    int is_kept;    // what `take` gives is computed once: it is not x itself
    int is_centred; // the mean is taken off
    int is_about;   // sums are about row->mean, not 0; the second sweep's own
    int is_summed;  // what `take` gives is written, too, where row->sum is
} berth_norm_form;

// ---- loads --------------------------------------------------------------------------------------

BERTH_INLINE berth_vec berth_norm_load(const void *vector, berth_dtype dtype, berth_norm_at at) {
    if (at.half == BERTH_NORM_SINGLE) {
        return berth_vec_load_some(vector, dtype, at.first, at.end);
    }
    if (dtype == BERTH_DTYPE_BF16) {
        const uint16_t *pairs = (const uint16_t *)vector + at.first;
        return at.half == BERTH_NORM_LOW ? berth_vec_first(pairs) : berth_vec_second(pairs);
    }
    return berth_vec_load_as(vector, dtype, at.first + (int64_t)at.half * BERTH_LANES);
}

BERTH_INLINE berth_vec berth_norm_x(const berth_norm_row *row, berth_norm_kind as,
                                    berth_norm_at at) {
    return berth_norm_load(row->x, as.dtype, at);
}

BERTH_INLINE berth_vec berth_norm_gate(const berth_norm_row *row, berth_norm_kind as,
                                       berth_norm_at at) {
    return berth_norm_load(row->gate, as.dtype, at);
}

BERTH_INLINE berth_vec berth_norm_sum(const berth_norm_row *row, berth_norm_kind as,
                                      berth_norm_at at) {
    return berth_norm_x(row, as, at) + berth_norm_gate(row, as, at);
}

// What `take` gives: itself, or what was kept of it, in the order in which it was taken.
BERTH_INLINE berth_vec berth_norm_taken(const berth_norm_row *row, berth_norm_kind as,
                                        berth_norm_form form, berth_norm_at at) {
    return form.is_kept ? berth_norm_load(row->values, BERTH_DTYPE_F32, at)
                        : form.take(row, as, at);
}

// Of a weight or bias.
BERTH_INLINE berth_vec berth_norm_column(const void *vector, berth_norm_kind as, berth_norm_at at) {
    if (at.half == BERTH_NORM_SINGLE || as.dtype != BERTH_DTYPE_BF16 || as.vectors == as.dtype) {
        return berth_norm_load(vector, as.vectors, at);
    }
    const berth_vec a = berth_vec_load((const float *)vector + at.first);
    const berth_vec b = berth_vec_load((const float *)vector + at.first + BERTH_LANES);
    return at.half == BERTH_NORM_LOW ? berth_vec_even(a, b) : berth_vec_odd(a, b);
}

BERTH_INLINE berth_vec berth_norm_weigh(const berth_norm_row *row, berth_norm_kind as,
                                        berth_norm_at at, berth_vec value) {
    if (row->weight) {
        value = value * berth_norm_column(row->weight, as, at);
    }
    return value;
}

BERTH_INLINE berth_vec berth_norm_weigh_and_add(const berth_norm_row *row, berth_norm_kind as,
                                                berth_norm_at at, berth_vec value) {
    value = berth_norm_weigh(row, as, at, value);
    if (row->bias) {
        value = value + berth_norm_column(row->bias, as, at);
    }
    return value;
}

// ---- stores -------------------------------------------------------------------------------------

BERTH_INLINE void berth_norm_store(berth_norm_kind as, void *to, int64_t first, berth_vec a) {
    if (as.is_past) {
        berth_vec_pass_as(to, as.dtype, first, a);
    } else {
        berth_vec_store_as(to, as.dtype, first, a);
    }
}

// The machine rounds subnormal numbers to 0; what is exact must keep them.
BERTH_INLINE berth_vec berth_norm_pairs_of(berth_norm_kind as, berth_vec low, berth_vec high) {
    if (as.is_joined && !(as.is_exact && berth_vec_has_subnormal(low, high))) {
        return berth_vec_mix(berth_vec_join_bf16(low, high));
    }
    return berth_vec_pairs_of(low, high);
}

BERTH_INLINE void berth_norm_store_pair(berth_norm_kind as, void *to, int64_t first, berth_vec low,
                                        berth_vec high) {
    if (as.dtype != BERTH_DTYPE_BF16) {
        berth_norm_store(as, to, first, low);
        berth_norm_store(as, to, first + BERTH_LANES, high);
        return;
    }
    void *pairs = (uint16_t *)to + first;
    const berth_norm_kind kind = {.dtype = BERTH_DTYPE_F32, .is_past = as.is_past};
    berth_norm_store(kind, pairs, 0, berth_norm_pairs_of(as, low, high));
}

// ---- spans --------------------------------------------------------------------------------------

// The columns from `first` on that are one group; those that are measured, and the others, are two.
static inline berth_span berth_norm_span_at(const berth_norm_row *row, int64_t first) {
    const int64_t measured = row->self->measured;
    const int64_t end = measured == 0      ? first + row->group
                        : first < measured ? measured
                                           : row->hidden;
    return (berth_span){first, end};
}

// Where the whole steps of a span end. Why none in f16: nothing that is fast has it, and converting
// it takes so much code that compiling it by four vectors takes minutes.
BERTH_INLINE int64_t berth_norm_steps_end(berth_norm_kind as, berth_span columns) {
    const int64_t count = columns.end - columns.first;
    return as.dtype == BERTH_DTYPE_F16 ? columns.first : columns.end - count % BERTH_NORM_STEP;
}

// The place of their factor.
static inline int64_t berth_norm_factor_of(const berth_norm_row *row, berth_span columns) {
    return columns.first / row->group;
}

#endif
