// SPDX-License-Identifier: Apache-2.0
// A row of a norm, read twice while it stays in the first cache: for its mean and mean of squares,
// then for the result, during which the next row is fetched. A kernel says how a value comes about
// and what becomes of it. All in float32 with one rounding.
#ifndef BERTH_KERNELS_CPU_NORM_ROW_H
#define BERTH_KERNELS_CPU_NORM_ROW_H

#include <cpu/elementwise.h>

// Begins as berth_instance does.
typedef struct berth_norm {
    const berth_host *host;
    const berth_cpu *cpu;
    float eps;
    int64_t hidden;      // columns
    int64_t group;       // of one mean; 0: all
    int64_t options;     // the kernel's own
    int64_t weight_rows; // of x so many rows in turn have one of the weight; 0: all have the same
} berth_norm;

// One row of each operand, NULL where absent. `gate` has x's dtype.
typedef struct berth_norm_row {
    const berth_norm *self;
    int64_t hidden;
    const void *x;
    const void *gate;
    const void *next_x; // the rows that come after these, fetched while this one is written
    const void *next_gate;
    const float *weight;
    const float *bias;
    float *weight_copy; // [hidden] of this thread, for a weight of another dtype
    float *values;      // [hidden] of this thread, for who computes what he norms only once
    void *sum;          // where x + gate goes, for a gate that is a residual
    void *y;
} berth_norm_row;

// Lanes [first, first + BERTH_LANES) of a row before its norm; zero behind its end.
typedef berth_vec (*berth_norm_take)(const berth_norm_row *row, berth_dtype dtype, int64_t first);
// The same after it, times what the kernel multiplies by.
typedef berth_vec (*berth_norm_give)(const berth_norm_row *row, berth_dtype dtype, int64_t first,
                                     berth_vec normal);

BERTH_INLINE berth_vec berth_norm_x(const berth_norm_row *row, berth_dtype dtype, int64_t first) {
    return berth_vec_load_some(row->x, dtype, first, row->hidden);
}

BERTH_INLINE berth_vec berth_norm_gate(const berth_norm_row *row, berth_dtype dtype,
                                       int64_t first) {
    return berth_vec_load_some(row->gate, dtype, first, row->hidden);
}

BERTH_INLINE berth_vec berth_norm_value(const berth_norm_row *row, berth_dtype dtype,
                                        int64_t first) {
    (void)dtype;
    return berth_vec_load_some(row->values, BERTH_DTYPE_F32, first, row->hidden);
}

BERTH_INLINE berth_vec berth_norm_weight(const berth_norm_row *row, int64_t first) {
    if (!row->weight) {
        return berth_vec_of(1);
    }
    return berth_vec_load_some(row->weight, BERTH_DTYPE_F32, first, row->hidden);
}

// All that `take` gives, as values.
BERTH_INLINE void berth_norm_keep(const berth_norm_row *row, berth_dtype dtype,
                                  berth_norm_take take) {
    for (int64_t first = 0; first < row->hidden; first += BERTH_LANES) {
        berth_vec_store_some(row->values, BERTH_DTYPE_F32, first, row->hidden,
                             take(row, dtype, first));
    }
}

BERTH_INLINE float berth_norm_mean(const berth_norm_row *row, berth_dtype dtype,
                                   berth_norm_take take) {
    berth_vec sums[2] = {berth_vec_of(0), berth_vec_of(0)};
    for (int64_t first = 0; first < row->hidden; first += 2 * BERTH_LANES) {
        sums[0] = sums[0] + take(row, dtype, first);
        sums[1] = sums[1] + take(row, dtype, first + BERTH_LANES);
    }
    return berth_vec_sum(sums[0] + sums[1]) / (float)row->hidden;
}

// 1 / sqrt of the mean of (value − mean)² over columns [begin, end), plus eps.
BERTH_INLINE berth_vec berth_norm_factor(const berth_norm_row *row, berth_dtype dtype,
                                         berth_norm_take take, float mean, berth_span columns) {
    berth_vec sums[2] = {berth_vec_of(0), berth_vec_of(0)};
    for (int64_t first = columns.first; first < columns.end; first += 2 * BERTH_LANES) {
        BERTH_UNROLL
        for (int i = 0; i < 2; ++i) {
            const int64_t left = columns.end - (first + i * BERTH_LANES);
            berth_vec distance = take(row, dtype, first + i * BERTH_LANES) - berth_vec_of(mean);
            if (left < BERTH_LANES) {
                distance = berth_vec_cut(distance, left);
            }
            sums[i] = berth_vec_fma(distance, distance, sums[i]);
        }
    }
    const float squares = berth_vec_sum(sums[0] + sums[1]);
    const float count = (float)(columns.end - columns.first);
    return berth_vec_of(1.0f / sqrtf(squares / count + row->self->eps));
}

// Columns that have one mean, which is taken off, and one factor.
typedef struct berth_norm_slice {
    float mean;
    berth_span columns;
} berth_norm_slice;

BERTH_INLINE void berth_norm_fetch_next(const berth_norm_row *row, berth_dtype dtype,
                                        int64_t first) {
    const int64_t bytes = first * (BERTH_DTYPE_BITS(dtype) / 8);
    BERTH_PREFETCH((const char *)row->next_x + bytes);
    if (row->gate) {
        BERTH_PREFETCH((const char *)row->next_gate + bytes);
    }
}

// Why the store by parts: a group may end inside a vector, whose other lanes are the next group's.
BERTH_INLINE void berth_norm_columns(const berth_norm_row *row, berth_sweep_kind as,
                                     berth_norm_take take, berth_norm_give give,
                                     berth_norm_slice of) {
    const berth_vec mean = berth_vec_of(of.mean);
    const int64_t end = of.columns.end;
    const berth_vec factor = berth_norm_factor(row, as.dtype, take, of.mean, of.columns);
    int64_t first = of.columns.first;
    for (; first + BERTH_LANES <= end; first += BERTH_LANES) {
        const berth_vec normal = (take(row, as.dtype, first) - mean) * factor;
        berth_norm_fetch_next(row, as.dtype, first);
        berth_sweep_store(as, row->y, first, give(row, as.dtype, first, normal));
    }
    if (first < end) {
        const berth_vec normal = (take(row, as.dtype, first) - mean) * factor;
        berth_vec_store_part(row->y, as.dtype, first, end - first,
                             give(row, as.dtype, first, normal));
    }
}

BERTH_INLINE void berth_norm_groups(const berth_norm_row *row, berth_sweep_kind as,
                                    berth_norm_take take, berth_norm_give give) {
    const int64_t group = row->self->group > 0 ? row->self->group : row->hidden;
    const berth_sweep_kind kind = {
        .dtype = as.dtype,
        .is_past = as.is_past && group % BERTH_LANES == 0,
    };
    for (int64_t first = 0; first < row->hidden; first += group) {
        berth_norm_columns(row, kind, take, give,
                           (berth_norm_slice){
                               0, {.first = first, .end = first + group}
        });
    }
}

#endif
