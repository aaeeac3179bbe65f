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

// Lanes from `first` on. Why the question is a constant: a loop that may have to load a part keeps
// its sums in memory.
typedef struct berth_norm_at {
    int64_t first;
    int is_whole; // the row does not end within them
} berth_norm_at;

// What stands there in a row before its norm; zero behind its end.
typedef berth_vec (*berth_norm_take)(const berth_norm_row *row, berth_dtype dtype,
                                     berth_norm_at at);
// The same after it, times what the kernel multiplies by.
typedef berth_vec (*berth_norm_give)(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                                     berth_vec normal);

BERTH_INLINE berth_vec berth_norm_load(const berth_norm_row *row, const void *vector,
                                       berth_dtype dtype, berth_norm_at at) {
    return at.is_whole ? berth_vec_load_as(vector, dtype, at.first)
                       : berth_vec_load_some(vector, dtype, at.first, row->hidden);
}

BERTH_INLINE berth_vec berth_norm_x(const berth_norm_row *row, berth_dtype dtype,
                                    berth_norm_at at) {
    return berth_norm_load(row, row->x, dtype, at);
}

BERTH_INLINE berth_vec berth_norm_gate(const berth_norm_row *row, berth_dtype dtype,
                                       berth_norm_at at) {
    return berth_norm_load(row, row->gate, dtype, at);
}

BERTH_INLINE berth_vec berth_norm_value(const berth_norm_row *row, berth_dtype dtype,
                                        berth_norm_at at) {
    (void)dtype;
    return berth_norm_load(row, row->values, BERTH_DTYPE_F32, at);
}

BERTH_INLINE berth_vec berth_norm_weight(const berth_norm_row *row, berth_norm_at at) {
    return row->weight ? berth_norm_load(row, row->weight, BERTH_DTYPE_F32, at) : berth_vec_of(1);
}

// All that `take` gives, as values, or as y for who is done with that; and where the sum goes, if
// there is one.
typedef enum berth_norm_target { BERTH_NORM_VALUES, BERTH_NORM_Y } berth_norm_target;
BERTH_INLINE void berth_norm_keep(const berth_norm_row *all, berth_sweep_kind as,
                                  berth_norm_take take, berth_norm_target target) {
    const berth_norm_row row = *all; // no store changes it, for all that the compiler knows
    void *to = target == BERTH_NORM_Y ? row.y : row.values;
    const berth_sweep_kind to_kind =
        target == BERTH_NORM_Y ? as : (berth_sweep_kind){.dtype = BERTH_DTYPE_F32};
    berth_norm_at at = {0, 1};
    for (; at.first + BERTH_LANES <= row.hidden; at.first += BERTH_LANES) {
        const berth_vec value = take(&row, as.dtype, at);
        berth_sweep_store(to_kind, to, at.first, value);
        if (row.sum) {
            berth_sweep_store(as, row.sum, at.first, value);
        }
    }
    const int64_t rest = row.hidden - at.first;
    if (rest > 0) {
        const berth_vec value = take(&row, as.dtype, (berth_norm_at){at.first, 0});
        berth_vec_store_part(to, to_kind.dtype, at.first, rest, value);
        if (row.sum) {
            berth_vec_store_part(row.sum, as.dtype, at.first, rest, value);
        }
    }
}

#define BERTH_NORM_SUMS 4 // vectors of partial sums: as many as an addition takes cycles

BERTH_INLINE float berth_norm_total(const berth_vec sums[BERTH_NORM_SUMS]) {
    return berth_vec_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

BERTH_INLINE float berth_norm_mean(const berth_norm_row *row, berth_dtype dtype,
                                   berth_norm_take take) {
    berth_vec sums[BERTH_NORM_SUMS] = {{0}};
    int64_t first = 0;
    for (; first + BERTH_NORM_SUMS * BERTH_LANES <= row->hidden;
         first += BERTH_NORM_SUMS * BERTH_LANES) {
        BERTH_UNROLL
        for (int i = 0; i < BERTH_NORM_SUMS; ++i) {
            const berth_norm_at at = {first + i * BERTH_LANES, 1};
            sums[i] = sums[i] + take(row, dtype, at);
        }
    }
    for (; first < row->hidden; first += BERTH_LANES) {
        sums[0] = sums[0] + take(row, dtype, (berth_norm_at){first, 0});
    }
    return berth_norm_total(sums) / (float)row->hidden;
}

// 1 / sqrt of the mean of (value − mean)² over columns [begin, end), plus eps.
BERTH_INLINE berth_vec berth_norm_factor(const berth_norm_row *row, berth_dtype dtype,
                                         berth_norm_take take, float mean, berth_span columns) {
    berth_vec sums[BERTH_NORM_SUMS] = {{0}};
    int64_t first = columns.first;
    for (; first + BERTH_NORM_SUMS * BERTH_LANES <= columns.end;
         first += BERTH_NORM_SUMS * BERTH_LANES) {
        BERTH_UNROLL
        for (int i = 0; i < BERTH_NORM_SUMS; ++i) {
            const berth_norm_at at = {first + i * BERTH_LANES, 1};
            const berth_vec distance = take(row, dtype, at) - berth_vec_of(mean);
            sums[i] = berth_vec_fma(distance, distance, sums[i]);
        }
    }
    for (; first < columns.end; first += BERTH_LANES) {
        const int64_t left = columns.end - first;
        berth_vec distance = take(row, dtype, (berth_norm_at){first, 0}) - berth_vec_of(mean);
        distance = left < BERTH_LANES ? berth_vec_cut(distance, left) : distance;
        sums[0] = berth_vec_fma(distance, distance, sums[0]);
    }
    const float count = (float)(columns.end - columns.first);
    return berth_vec_of(1.0f / sqrtf(berth_norm_total(sums) / count + row->self->eps));
}

// Columns that have one mean, which is taken off, and one factor.
typedef struct berth_norm_slice {
    float mean;
    berth_span columns;
    berth_vec factor;
} berth_norm_slice;

BERTH_INLINE void berth_norm_fetch_next(const berth_norm_row *row, berth_dtype dtype,
                                        int64_t first) {
    const int64_t bytes = first * (BERTH_DTYPE_BITS(dtype) / 8);
    BERTH_PREFETCH((const char *)row->next_x + bytes);
    if (row->gate) {
        BERTH_PREFETCH((const char *)row->next_gate + bytes);
    }
}

// The columns times a factor. Why the store by parts: a group may end inside a vector, whose other
// lanes are the next group's.
BERTH_INLINE void berth_norm_scale(const berth_norm_row *all, berth_sweep_kind as,
                                   berth_norm_take take, berth_norm_give give,
                                   const berth_norm_slice *of) {
    const berth_norm_row row = *all; // no store changes it, for all that the compiler knows
    const berth_vec mean = berth_vec_of(of->mean);
    const berth_vec factor = of->factor;
    const int64_t end = of->columns.end;
    berth_norm_at at = {of->columns.first, 1};
    for (; at.first + BERTH_LANES <= end; at.first += BERTH_LANES) {
        const berth_vec normal = (take(&row, as.dtype, at) - mean) * factor;
        berth_norm_fetch_next(&row, as.dtype, at.first);
        berth_sweep_store(as, row.y, at.first, give(&row, as.dtype, at, normal));
    }
    at.is_whole = 0;
    if (at.first < end) {
        const berth_vec normal = (take(&row, as.dtype, at) - mean) * factor;
        berth_vec_store_part(row.y, as.dtype, at.first, end - at.first,
                             give(&row, as.dtype, at, normal));
    }
}

BERTH_INLINE void berth_norm_columns(const berth_norm_row *row, berth_sweep_kind as,
                                     berth_norm_take take, berth_norm_give give,
                                     berth_norm_slice of) {
    of.factor = berth_norm_factor(row, as.dtype, take, of.mean, of.columns);
    berth_norm_scale(row, as, take, give, &of);
}

BERTH_INLINE void berth_norm_groups(const berth_norm_row *row, berth_sweep_kind as,
                                    berth_norm_take take, berth_norm_give give) {
    const int64_t group = row->self->group > 0 ? row->self->group : row->hidden;
    const berth_sweep_kind kind = {
        .dtype = as.dtype,
        .is_past = as.is_past && group % BERTH_LANES == 0,
    };
    for (int64_t first = 0; first < row->hidden; first += group) {
        const berth_span columns = {first, first + group};
        berth_norm_columns(row, kind, take, give, (berth_norm_slice){.columns = columns});
    }
}

#endif
