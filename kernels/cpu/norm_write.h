// SPDX-License-Identifier: Apache-2.0
// The results of rows of a norm that were measured: one row alone, or some while as many next ones
// are measured, so that memory does not wait for arithmetic.
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

BERTH_INLINE berth_vec berth_norm_given(const berth_norm_row *row, berth_norm_kind as,
                                        berth_norm_form form, berth_norm_at at,
                                        const berth_norm_scale *by) {
    berth_vec value = berth_norm_taken(row, as, form, at);
    if (form.is_centred) {
        value = value - by->mean;
    }
    return form.give(row, as, at, value * by->factor);
}

BERTH_INLINE void berth_norm_write_step(const berth_norm_row *row, berth_norm_kind as,
                                        berth_norm_form form, int64_t first,
                                        const berth_norm_scale *by) {
    BERTH_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
        const int64_t at = first + pair * BERTH_NORM_PAIR;
        const berth_norm_at low = {BERTH_NORM_LOW, at, 0};
        const berth_norm_at high = {BERTH_NORM_HIGH, at, 0};
        berth_norm_store_pair(as, row->y, at, berth_norm_given(row, as, form, low, by),
                              berth_norm_given(row, as, form, high, by));
    }
}

// Why the store of some: a group may end inside a vector, whose other lanes are the next group's.
BERTH_INLINE void berth_norm_write_span(const berth_norm_row *all, berth_norm_kind as,
                                        berth_norm_form form, berth_span columns) {
    const berth_norm_row row = *all; // no store changes it, for all that the compiler knows
    const berth_norm_scale by = berth_norm_scale_of(&row, form, columns);
    int64_t first = columns.first;
    for (; first < berth_norm_steps_end(as, columns); first += BERTH_NORM_STEP) {
        berth_norm_write_step(&row, as, form, first, &by);
    }
    for (; first < columns.end; first += BERTH_LANES) {
        const berth_norm_at at = {BERTH_NORM_SINGLE, first, columns.end};
        berth_vec_store_some(row.y, as.dtype, first, columns.end,
                             berth_norm_given(&row, as, form, at, &by));
    }
}

BERTH_INLINE void berth_norm_write(const berth_norm_row *row, berth_norm_kind as,
                                   berth_norm_form form) {
    for (int64_t first = 0; first < row->hidden; first += row->group) {
        berth_norm_write_span(row, as, form, (berth_span){first, first + row->group});
    }
}

// ---- rows by fours ------------------------------------------------------------------------------

// Why four: measured, the more streams there are, the faster memory is, up to this.
#define BERTH_NORM_ROWS  4
#define BERTH_NORM_AHEAD 2048 // bytes
#define BERTH_NORM_LINE  64

// Rows that are written, and as many that come after them.
typedef struct berth_norm_rows {
    berth_norm_row now[BERTH_NORM_ROWS];
    berth_norm_row next[BERTH_NORM_ROWS];
} berth_norm_rows;

BERTH_INLINE void berth_norm_fetch(const berth_norm_row *now, const berth_norm_row *next,
                                   berth_norm_kind as, berth_norm_form form, int64_t first) {
    const int64_t bytes = BERTH_DTYPE_BITS(as.dtype) / 8;
    const char *gate = form.gives_gates ? now->gate : next->gate;
    for (int64_t at = 0; at < BERTH_NORM_STEP * bytes; at += BERTH_NORM_LINE) {
        const int64_t ahead = first * bytes + at + BERTH_NORM_AHEAD;
        BERTH_PREFETCH_FAR((const char *)next->x + ahead);
        if (gate) {
            BERTH_PREFETCH_FAR(gate + ahead);
        }
    }
}

BERTH_INLINE void berth_norm_both_span(berth_norm_rows *of, berth_norm_kind as,
                                       berth_norm_form form, berth_span columns) {
    berth_norm_sums sums[BERTH_NORM_ROWS] = {
        {{{0}}, {{0}}}
    };
    berth_norm_scale by[BERTH_NORM_ROWS];
    for (int i = 0; i < BERTH_NORM_ROWS; ++i) {
        by[i] = berth_norm_scale_of(&of->now[i], form, columns);
    }
    for (int64_t first = columns.first; first < columns.end; first += BERTH_NORM_STEP) {
        for (int i = 0; i < BERTH_NORM_ROWS; ++i) {
            berth_norm_fetch(&of->now[i], &of->next[i], as, form, first);
            berth_norm_measure_step(&of->next[i], as, form, first, &sums[i]);
            berth_norm_write_step(&of->now[i], as, form, first, &by[i]);
        }
    }
    for (int i = 0; i < BERTH_NORM_ROWS; ++i) {
        berth_norm_finish(&of->next[i], as, form, columns, &sums[i]);
    }
}

// Writes rows and measures the next ones; all of their groups are whole steps.
BERTH_INLINE void berth_norm_both(berth_norm_rows *of, berth_norm_kind as, berth_norm_form form) {
    for (int64_t first = 0; first < of->now[0].hidden; first += of->now[0].group) {
        berth_norm_both_span(of, as, form, (berth_span){first, first + of->now[0].group});
    }
}

#endif
