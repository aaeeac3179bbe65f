// SPDX-License-Identifier: Apache-2.0
// The mean and the factors of a row of a norm, by one sweep over what is normed.
#ifndef BERTH_KERNELS_CPU_NORM_SUMS_H
#define BERTH_KERNELS_CPU_NORM_SUMS_H

#include <cpu/norm_row.h>

// Of every fourth vector of a group, about a number near its mean where that is taken off.
typedef struct berth_norm_sums {
    berth_vec sum;
    berth_vec squares;
} berth_norm_sums;

BERTH_INLINE void berth_norm_add(const berth_norm_row *row, berth_norm_form form, berth_vec value,
                                 berth_norm_sums *to) {
    const berth_vec near = berth_vec_of(form.is_centred ? row->mean : 0);
    const berth_vec distance = value - near;
    if (form.is_centred) {
        to->sum = to->sum + distance;
    }
    to->squares = berth_vec_fma(distance, distance, to->squares);
}

#define BERTH_NORM_FAR 16 // deviations² of the mean from where it was thought to be

// The mean and the factor that the sums of so many columns make. Where the mean lies far from the
// number that they are about, what is left of the squares is not exact, and they are taken again.
BERTH_INLINE void berth_norm_conclude(berth_norm_row *row, berth_dtype dtype, berth_norm_form form,
                                      berth_span columns,
                                      const berth_norm_sums sums[BERTH_NORM_SUMS]) {
    const float count = (float)(columns.end - columns.first);
    const int64_t group = columns.first / berth_norm_group(row);
    berth_vec parts[BERTH_NORM_SUMS];
    berth_vec squares[BERTH_NORM_SUMS];
    BERTH_UNROLL
    for (int i = 0; i < BERTH_NORM_SUMS; ++i) {
        parts[i] = sums[i].sum;
        squares[i] = sums[i].squares;
    }
    const float off = form.is_centred ? berth_norm_total(parts) / count : 0;
    const float variance = berth_norm_total(squares) / count - off * off;
    if (form.is_centred && !(off * off <= BERTH_NORM_FAR * variance)) {
        row->mean = berth_norm_mean(row, dtype, form.take);
        row->factors[group] = berth_norm_factor(row, dtype, form, columns);
        return;
    }
    row->mean = row->mean + off;
    row->factors[group] = 1.0f / sqrtf(variance + row->self->eps);
}

// The number near the mean: that of some first columns.
BERTH_INLINE void berth_norm_guess(berth_norm_row *row, berth_dtype dtype, berth_norm_form form) {
    if (form.is_centred) {
        const berth_vec some = form.take(row, dtype, (berth_norm_at){0, 0});
        const int64_t count = row->hidden < BERTH_LANES ? row->hidden : BERTH_LANES;
        row->mean = berth_vec_sum(some) / (float)count;
    }
}

// In the order of berth_norm_both, so that it does not matter which row is a part's first one.
BERTH_INLINE void berth_norm_sum_up(berth_norm_row *row, berth_dtype dtype, berth_norm_form form,
                                    berth_span columns) {
    berth_norm_sums sums[BERTH_NORM_SUMS] = {0};
    int64_t first = columns.first;
    for (; first + BERTH_NORM_SUMS * BERTH_LANES <= columns.end;
         first += BERTH_NORM_SUMS * BERTH_LANES) {
        BERTH_UNROLL
        for (int i = 0; i < BERTH_NORM_SUMS; ++i) {
            const berth_norm_at at = {first + i * BERTH_LANES, 1};
            berth_norm_add(row, form, berth_norm_taken(row, dtype, form, at), &sums[i]);
        }
    }
    for (; first < columns.end; first += BERTH_LANES) {
        const berth_vec mean = berth_vec_of(form.is_centred ? row->mean : 0);
        const berth_vec value = berth_norm_taken(row, dtype, form, (berth_norm_at){first, 0});
        const berth_vec inside = berth_vec_cut(value - mean, columns.end - first) + mean;
        berth_norm_add(row, form, inside, &sums[0]);
    }
    berth_norm_conclude(row, dtype, form, columns, sums);
}

// Of a row alone: what is kept of it, its mean and factors.
BERTH_INLINE void berth_norm_measure(berth_norm_row *row, berth_sweep_kind as,
                                     berth_norm_form form) {
    const int64_t group = berth_norm_group(row);
    if (form.is_kept) {
        as.is_past = 0;
        berth_norm_keep(row, as, form.take, BERTH_NORM_VALUES);
    }
    berth_norm_guess(row, as.dtype, form);
    for (int64_t first = 0; first < row->hidden; first += group) {
        const int64_t measured = row->self->measured > 0 ? row->self->measured : group;
        berth_norm_sum_up(row, as.dtype, form, (berth_span){first, first + measured});
    }
}

#endif
