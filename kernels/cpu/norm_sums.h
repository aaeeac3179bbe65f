// SPDX-License-Identifier: Apache-2.0
// The mean and the factors of a row of a norm, by one sweep over what is normed.
#ifndef BERTH_KERNELS_CPU_NORM_SUMS_H
#define BERTH_KERNELS_CPU_NORM_SUMS_H

#include <cpu/norm_row.h>

// Of the vectors of every second pair, about row->mean where a mean is taken off.
typedef struct berth_norm_half_sums {
    berth_vec sum[2];
    berth_vec squares[2];
} berth_norm_half_sums;

typedef struct berth_norm_sums {
    berth_norm_half_sums even;
    berth_norm_half_sums odd;
} berth_norm_sums;

// Why not memset: sums that were filled so stay in memory.
BERTH_INLINE berth_norm_sums berth_norm_no_sums(void) {
    const berth_vec zero = berth_vec_of(0);
    const berth_norm_half_sums none = {
        {zero, zero},
        {zero, zero}
    };
    return (berth_norm_sums){none, none};
}

BERTH_INLINE void berth_norm_add(const berth_norm_row *row, berth_norm_form form, berth_vec value,
                                 berth_norm_half_sums *to, int at) {
    if (form.is_about) {
        value = value - berth_vec_of(row->mean);
    }
    if (form.is_centred) {
        to->sum[at] = to->sum[at] + value;
    }
    to->squares[at] = berth_vec_fma(value, value, to->squares[at]);
}

BERTH_INLINE float berth_norm_total(const berth_vec even[2], const berth_vec odd[2]) {
    return berth_vec_sum((even[0] + even[1]) + (odd[0] + odd[1]));
}

// The mean and the factor that the sums make; whether the sums were about a number so far from the
// mean, or the squares so large, that what is left of them is not exact.
#define BERTH_NORM_FAR 4 // deviations² of the mean from that number
BERTH_INLINE int berth_norm_conclude(berth_norm_row *row, berth_norm_form form, berth_span columns,
                                     const berth_norm_sums *sums) {
    const float count = (float)(columns.end - columns.first);
    const float off = form.is_centred ? berth_norm_total(sums->even.sum, sums->odd.sum) / count : 0;
    const float squares = berth_norm_total(sums->even.squares, sums->odd.squares) / count;
    const float rest = squares - off * off;
    const float variance = rest > 0 ? rest : squares; // these may be infinite
    row->factors[berth_norm_factor_of(row, columns)] = 1.0f / sqrtf(variance + row->self->eps);
    row->mean = row->mean + off;
    return form.is_centred && !(squares < (BERTH_NORM_FAR + 1) * rest);
}

// A pair comes to the sums, and is kept where that is asked for.
BERTH_INLINE void berth_norm_measure_pair(const berth_norm_row *row, berth_norm_kind as,
                                          berth_norm_form form, int64_t first,
                                          berth_norm_half_sums *to) {
    const berth_vec low = form.take(row, as, (berth_norm_at){BERTH_NORM_LOW, first, 0});
    const berth_vec high = form.take(row, as, (berth_norm_at){BERTH_NORM_HIGH, first, 0});
    berth_norm_add(row, form, low, to, 0);
    berth_norm_add(row, form, high, to, 1);
    if (form.is_kept) {
        berth_vec_store(row->values + first, low);
        berth_vec_store(row->values + first + BERTH_LANES, high);
    }
    if (form.is_summed && row->sum) {
        as.is_exact = 1;
        berth_norm_store_pair(as, row->sum, first, low, high);
    }
}

// The same with a single vector.
BERTH_INLINE void berth_norm_measure_one(const berth_norm_row *row, berth_norm_kind as,
                                         berth_norm_form form, berth_norm_at at,
                                         berth_norm_half_sums *to) {
    const berth_vec value = form.take(row, as, at);
    if (at.end - at.first >= BERTH_LANES) {
        berth_norm_add(row, form, value, to, 0);
    } else {
        const berth_vec mean = berth_vec_of(form.is_centred ? row->mean : 0);
        const berth_vec inside = berth_vec_cut(value - mean, at.end - at.first);
        berth_norm_add(row, form, inside + mean, to, 0);
    }
    if (form.is_kept) {
        berth_vec_store_some(row->values, BERTH_DTYPE_F32, at.first, at.end, value);
    }
    if (form.is_summed && row->sum) {
        berth_vec_store_some(row->sum, as.dtype, at.first, at.end, value);
    }
}

// Why: of few rows all is cold. x and the gate come this many bytes earlier, the weight and the
// lines of y, which are to be written, while the row is measured.
#define BERTH_NORM_NEAR 1024
BERTH_INLINE void berth_norm_fetch_near(const berth_norm_row *row, berth_norm_kind as,
                                        int64_t first) {
    const int64_t bytes = BERTH_DTYPE_BITS(as.dtype) / 8;
    const int64_t vector = BERTH_DTYPE_BITS(as.vectors) / 8;
    BERTH_UNROLL
    for (int64_t at = 0; at < BERTH_NORM_STEP * bytes; at += BERTH_LINE) {
        if (row->gate) {
            BERTH_PREFETCH((const char *)row->gate + first * bytes + at + BERTH_NORM_NEAR);
        }
        BERTH_PREFETCH((const char *)row->x + first * bytes + at + BERTH_NORM_NEAR);
        __builtin_prefetch((const char *)row->y + first * bytes + at, 1, 3);
    }
    BERTH_UNROLL
    for (int64_t at = 0; at < BERTH_NORM_STEP * vector; at += BERTH_LINE) {
        if (row->weight) {
            BERTH_PREFETCH((const char *)row->weight + first * vector + at);
        }
    }
}

// Far ahead a row is asked for twice, while the one before it is measured and while it is written.
BERTH_INLINE berth_norm_sums berth_norm_sum_up(const berth_norm_row *all, berth_norm_kind as,
                                               berth_norm_form form, berth_span columns) {
    const berth_norm_row row = *all; // no store changes it, for all that the compiler knows
    berth_norm_sums sums = berth_norm_no_sums();
    int64_t first = columns.first;
    for (; first < berth_norm_steps_end(as, columns); first += BERTH_NORM_STEP) {
        if (as.is_near) {
            berth_norm_fetch_near(&row, as, first);
        } else if (as.is_ahead && row.ahead.is_far) {
            berth_fetch_once(row.x, as.dtype, first, BERTH_NORM_STEP, row.ahead);
        }
        berth_norm_measure_pair(&row, as, form, first, &sums.even);
        berth_norm_measure_pair(&row, as, form, first + BERTH_NORM_PAIR, &sums.odd);
    }
    for (; first < columns.end; first += BERTH_LANES) {
        const berth_norm_at at = {BERTH_NORM_SINGLE, first, columns.end};
        berth_norm_measure_one(&row, as, form, at, &sums.even);
    }
    return sums;
}

// By the sums that were taken, or by new ones about the mean that these have. Why about 0 at first:
// most rows have a mean near it, which then is as exact as a float can say it.
BERTH_INLINE void berth_norm_finish(berth_norm_row *row, berth_norm_kind as, berth_norm_form form,
                                    berth_span columns, const berth_norm_sums *sums) {
    if (berth_norm_conclude(row, form, columns, sums)) {
        form.is_about = 1;
        const berth_norm_sums again = berth_norm_sum_up(row, as, form, columns);
        (void)berth_norm_conclude(row, form, columns, &again);
    }
}

// The mean and factors of a row, and what is kept of it.
BERTH_INLINE void berth_norm_measure(berth_norm_row *row, berth_norm_kind as,
                                     berth_norm_form form) {
    berth_span columns = berth_norm_span_at(row, 0);
    for (; columns.first < row->hidden; columns = berth_norm_span_at(row, columns.end)) {
        const berth_norm_sums sums = berth_norm_sum_up(row, as, form, columns);
        if (columns.first == 0 || row->self->measured == 0) {
            berth_norm_finish(row, as, form, columns, &sums);
        }
    }
}

#endif
