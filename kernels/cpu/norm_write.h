// SPDX-License-Identifier: Apache-2.0
// The results of a row of a norm that was measured. While a long result is written the next row is
// fetched or measured: stores past the caches and reads take turns as in a copy, and neither waits.
#ifndef BERTH_KERNELS_CPU_NORM_WRITE_H
#define BERTH_KERNELS_CPU_NORM_WRITE_H

#include <cpu/norm_sums.h>

// A span's mean and factor.
typedef struct berth_norm_scale {
    berth_vec mean;
    berth_vec factor;
} berth_norm_scale;

BERTH_INLINE berth_norm_scale berth_norm_scale_of(const berth_norm_row *row, berth_norm_form form,
                                                  berth_span columns) {
    return (berth_norm_scale){
        .mean = berth_vec_of(form.is_centred ? row->mean : 0),
        .factor = berth_vec_of(row->factors[berth_norm_factor_of(row, columns)]),
    };
}

BERTH_INLINE berth_vec berth_norm_normal(berth_norm_form form, const berth_norm_scale *by,
                                         berth_vec value) {
    if (form.is_centred) {
        value = value - by->mean;
    }
    return value * by->factor;
}

// Why loads first: y may be x itself.
BERTH_INLINE void berth_norm_write_pair(const berth_norm_row *row, berth_norm_kind as,
                                        berth_norm_form form, int64_t first,
                                        const berth_norm_scale *by) {
    const berth_norm_at at_low = {BERTH_NORM_LOW, first, 0};
    const berth_norm_at at_high = {BERTH_NORM_HIGH, first, 0};
    const berth_vec low = berth_norm_taken(row, as, form, at_low);
    const berth_vec high = berth_norm_taken(row, as, form, at_high);
    berth_vec a = berth_norm_normal(form, by, low);
    berth_vec b = berth_norm_normal(form, by, high);
    a = form.give(row, as, at_low, a);
    b = form.give(row, as, at_high, b);
    berth_norm_store_pair(as, row->y, first, a, b);
}

// Why the store of some: a group may end inside a vector, whose other lanes are the next group's.
BERTH_INLINE void berth_norm_write_one(const berth_norm_row *row, berth_norm_kind as,
                                       berth_norm_form form, berth_norm_at at,
                                       const berth_norm_scale *by) {
    const berth_vec value = berth_norm_taken(row, as, form, at);
    berth_vec y = berth_norm_normal(form, by, value);
    y = form.give(row, as, at, y);
    berth_vec_store_some(row->y, as.dtype, at.first, at.end, y);
}

#define BERTH_NORM_PASS_AHEAD 4096 // bytes, of the row that is measured while another is written

// What of a later row is fetched while a pair is written. Why no berth_step_at: far ahead, its
// arithmetic costs rms_norm in bf16 a fifth (0.68 of a copy's speed on a Zen 4, this 0.85).
BERTH_INLINE void berth_norm_fetch_ahead(const berth_norm_row *row, berth_norm_kind as,
                                         berth_span columns, int64_t first) {
    if (row->ahead.is_far) {
        berth_fetch_once(row->x, as.dtype, first, BERTH_NORM_PAIR, row->ahead);
        return;
    }
    const int64_t turn = (first - columns.first) / BERTH_NORM_PAIR;
    const int64_t turns = (columns.end - columns.first) / BERTH_NORM_PAIR;
    const int64_t there = columns.first + berth_side_by_side(turn, turns) * BERTH_NORM_PAIR;
    berth_fetch_once(row->x, as.dtype, there, BERTH_NORM_PAIR, row->ahead);
}

BERTH_INLINE void berth_norm_write_span(const berth_norm_row *all, berth_norm_kind as,
                                        berth_norm_form form, berth_span columns) {
    const berth_norm_row row = *all; // no store changes it, for all that the compiler knows
    const berth_norm_scale by = berth_norm_scale_of(&row, form, columns);
    const berth_span steps = {columns.first, berth_norm_steps_end(as, columns)};
    int64_t first = columns.first;
    for (; first < steps.end; first += BERTH_NORM_PAIR) {
        const int64_t mirrored = steps.first + steps.end - BERTH_NORM_PAIR - first;
        if (as.is_ahead) {
            berth_norm_fetch_ahead(&row, as, steps, first);
        }
        berth_norm_write_pair(&row, as, form, row.is_backward ? mirrored : first, &by);
    }
    for (; first < columns.end; first += BERTH_LANES) {
        const berth_norm_at at = {BERTH_NORM_SINGLE, first, columns.end};
        berth_norm_write_one(&row, as, form, at, &by);
    }
}

// A row that is written, by which numbers, and the next one, which is measured meanwhile.
typedef struct berth_norm_passing {
    const berth_norm_row *written;
    const berth_norm_row *measured;
    berth_norm_scale by;
} berth_norm_passing;

// A pair of the one is written, then that of the other measured: both are kept in one place.
BERTH_INLINE void berth_norm_pass_pair(const berth_norm_passing *rows, berth_norm_kind as,
                                       berth_norm_form form, int64_t first,
                                       berth_norm_half_sums *to) {
    const berth_norm_row *next = rows->measured;
    const int is_far = next->ahead.is_far;
    const berth_ahead ahead = {BERTH_NORM_PASS_AHEAD * (is_far ? 2 : 1), is_far};
    berth_fetch(next->x, as.dtype, first, BERTH_NORM_PAIR, ahead);
    if (rows->written->gate) {
        berth_fetch(form.is_kept ? next->gate : rows->written->gate, as.dtype, first,
                    BERTH_NORM_PAIR, ahead);
    }
    berth_norm_write_pair(rows->written, as, form, first, &rows->by);
    berth_norm_measure_pair(next, as, form, first, to);
}

BERTH_INLINE void berth_norm_pass_span(const berth_norm_row *written, berth_norm_row *measured,
                                       berth_norm_kind as, berth_norm_form form,
                                       berth_span columns) {
    const berth_norm_passing rows = {written, measured,
                                     berth_norm_scale_of(written, form, columns)};
    berth_norm_sums sums = berth_norm_no_sums();
    for (int64_t first = columns.first; first < columns.end; first += BERTH_NORM_STEP) {
        berth_norm_pass_pair(&rows, as, form, first, &sums.even);
        berth_norm_pass_pair(&rows, as, form, first + BERTH_NORM_PAIR, &sums.odd);
    }
    berth_norm_finish(measured, as, form, columns, &sums);
}

// A row is written past the caches while the next one is measured: memory reads and writes at once,
// as in a copy. Of rows that berth_norm_can_pass.
BERTH_INLINE void berth_norm_pass(const berth_norm_row *written, berth_norm_row *measured,
                                  berth_norm_kind as, berth_norm_form form) {
    const berth_norm_row one = *written; // no store changes them, for all that the compiler knows
    berth_norm_row two = *measured;
    as.is_past = 1;
    for (int64_t first = 0; first < one.hidden; first += one.group) {
        berth_norm_pass_span(&one, &two, as, form, (berth_span){first, first + one.group});
    }
    measured->mean = two.mean;
}

BERTH_INLINE void berth_norm_write(const berth_norm_row *row, berth_norm_kind as,
                                   berth_norm_form form) {
    berth_span columns = berth_norm_span_at(row, 0);
    for (; columns.first < row->hidden; columns = berth_norm_span_at(row, columns.end)) {
        berth_norm_write_span(row, as, form, columns);
    }
}

#endif
