// SPDX-License-Identifier: Apache-2.0
// Two rows of a norm at once: one is written, past the caches, while the sums of the next one are
// taken, so that memory never waits for arithmetic.
#ifndef BERTH_KERNELS_CPU_NORM_NEXT_H
#define BERTH_KERNELS_CPU_NORM_NEXT_H

#include <cpu/norm_sums.h>

#define BERTH_NORM_STEP  (BERTH_NORM_SUMS * BERTH_LANES)
#define BERTH_NORM_AHEAD 8192 // bytes
#define BERTH_NORM_LINE  64

BERTH_INLINE void berth_norm_fetch(const berth_norm_row *row, berth_dtype dtype, int64_t first) {
    const int64_t bytes = first * (BERTH_DTYPE_BITS(dtype) / 8) + BERTH_NORM_AHEAD;
    BERTH_PREFETCH_FAR((const char *)row->x + bytes);
    if (row->gate) {
        BERTH_PREFETCH_FAR((const char *)row->gate + bytes);
    }
}

// What a group's loop is about.
typedef struct berth_norm_two {
    berth_norm_row now;
    berth_norm_row next;
    berth_vec mean; // of this row
    berth_vec factor;
} berth_norm_two;

// Two vectors: the next row's come to the sums, this row's are written. All is loaded before
// anything is stored: rows lie whole pages apart, and a load waits for a store with the same offset
// in its page.
BERTH_INLINE void berth_norm_both(const berth_norm_two *of, berth_sweep_kind as,
                                  berth_norm_form form, berth_norm_sums sums[2], int64_t first) {
    const berth_norm_row *now = &of->now;
    const berth_norm_row *next = &of->next;
    const berth_norm_at low = {first, 1};
    const berth_norm_at high = {first + BERTH_LANES, 1};
    const berth_vec c = form.take(next, as.dtype, low);
    const berth_vec d = form.take(next, as.dtype, high);
    const berth_vec a = (berth_norm_taken(now, as.dtype, form, low) - of->mean) * of->factor;
    const berth_vec b = (berth_norm_taken(now, as.dtype, form, high) - of->mean) * of->factor;
    berth_norm_add(next, form, c, &sums[0]);
    berth_norm_add(next, form, d, &sums[1]);
    berth_sweep_store_two(as, now->y, first, form.give(now, as.dtype, low, a),
                          form.give(now, as.dtype, high, b));
    if (form.is_kept) {
        berth_vec_store(next->values + first, c);
        berth_vec_store(next->values + first + BERTH_LANES, d);
    }
    if (next->sum) {
        berth_sweep_store_two(as, next->sum, first, c, d);
    }
}

BERTH_INLINE void berth_norm_group_of_both(const berth_norm_row *row, berth_norm_row *next,
                                           berth_sweep_kind as, berth_norm_form form,
                                           berth_span columns) {
    const berth_norm_two of = {
        .now = *row, // no store changes them, for all that the compiler knows
        .next = *next,
        .mean = berth_vec_of(form.is_centred ? row->mean : 0),
        .factor = berth_vec_of(row->factors[columns.first / berth_norm_group(row)]),
    };
    berth_norm_sums sums[BERTH_NORM_SUMS] = {0};
    for (int64_t first = columns.first; first < columns.end; first += BERTH_NORM_STEP) {
        for (int64_t i = 0; i < BERTH_NORM_STEP;
             i += BERTH_NORM_LINE / (BERTH_DTYPE_BITS(as.dtype) / 8)) {
            berth_norm_fetch(&of.next, as.dtype, first + i);
        }
        berth_norm_both(&of, as, form, sums, first);
        berth_norm_both(&of, as, form, sums + 2, first + 2 * BERTH_LANES);
    }
    berth_norm_conclude(next, as.dtype, form, columns, sums);
}

// Writes a row and measures the next one.
BERTH_INLINE void berth_norm_next(const berth_norm_row *row, berth_norm_row *next,
                                  berth_sweep_kind as, berth_norm_form form) {
    const int64_t group = berth_norm_group(row);
    berth_norm_guess(next, as.dtype, form);
    for (int64_t first = 0; first < row->hidden; first += group) {
        berth_norm_group_of_both(row, next, as, form, (berth_span){first, first + group});
    }
}

#endif
