// SPDX-License-Identifier: Apache-2.0
// The results of a row of a norm that was measured. While they are written the next row is fetched,
// so that it is there when it is measured.
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

BERTH_INLINE int berth_norm_rounds(const berth_norm_row *row, berth_norm_form form) {
    return form.is_rounded && row->weight && !row->bias;
}

// Why loads first: y may be x itself, and the sum the gate.
BERTH_INLINE void berth_norm_write_pair(const berth_norm_row *row, berth_norm_kind as,
                                        berth_norm_form form, int64_t first,
                                        const berth_norm_scale *by) {
    const berth_norm_at at_low = {BERTH_NORM_LOW, first, 0};
    const berth_norm_at at_high = {BERTH_NORM_HIGH, first, 0};
    const berth_vec low = berth_norm_taken(row, as, form, at_low);
    const berth_vec high = berth_norm_taken(row, as, form, at_high);
    berth_vec a = berth_norm_normal(form, by, low);
    berth_vec b = berth_norm_normal(form, by, high);
    if (as.vectors == BERTH_DTYPE_BF16 && berth_norm_rounds(row, form)) {
        const berth_vec pairs = berth_norm_pairs_of(as, a, b);
        a = berth_vec_first_of(pairs);
        b = berth_vec_second_of(pairs);
    }
    a = form.give(row, as, at_low, a);
    b = form.give(row, as, at_high, b);
    berth_norm_store_pair(as, row->y, first, a, b);
    if (form.is_summed && row->sum) {
        berth_norm_store_pair(as, row->sum, first, low, high);
    }
}

// Why the store of some: a group may end inside a vector, whose other lanes are the next group's.
BERTH_INLINE void berth_norm_write_one(const berth_norm_row *row, berth_norm_kind as,
                                       berth_norm_form form, berth_norm_at at,
                                       const berth_norm_scale *by) {
    const berth_vec value = berth_norm_taken(row, as, form, at);
    berth_vec y = berth_norm_normal(form, by, value);
    if (berth_norm_rounds(row, form)) {
        y = berth_vec_round_to(as.vectors, y);
    }
    y = form.give(row, as, at, y);
    berth_vec_store_some(row->y, as.dtype, at.first, at.end, y);
    if (form.is_summed && row->sum) {
        berth_vec_store_some(row->sum, as.dtype, at.first, at.end, value);
    }
}

// Why so far: less does not cover the way from memory (measured on Zen 5). Why a row at a time, and
// not several, or one written while the next is measured: stores to one place go past the caches
// faster than to several, and one row and its weight is what the first cache has room for.
#define BERTH_NORM_AHEAD 8192 // bytes
#define BERTH_NORM_LINE  64

BERTH_INLINE void berth_norm_fetch(const berth_norm_row *row, berth_norm_kind as, int64_t first) {
    const int64_t bytes = BERTH_DTYPE_BITS(as.dtype) / 8;
    BERTH_UNROLL
    for (int64_t at = 0; at < BERTH_NORM_PAIR * bytes; at += BERTH_NORM_LINE) {
        const int64_t ahead = first * bytes + at + BERTH_NORM_AHEAD;
        BERTH_PREFETCH(row->next_x + ahead);
        if (row->gate) {
            BERTH_PREFETCH(row->next_gate + ahead);
        }
    }
}

BERTH_INLINE void berth_norm_write_span(const berth_norm_row *all, berth_norm_kind as,
                                        berth_norm_form form, berth_span columns) {
    const berth_norm_row row = *all; // no store changes it, for all that the compiler knows
    const berth_norm_scale by = berth_norm_scale_of(&row, form, columns);
    int64_t first = columns.first;
    for (; first < berth_norm_steps_end(as, columns); first += BERTH_NORM_PAIR) {
        if (as.is_past) {
            berth_norm_fetch(&row, as, first);
        }
        berth_norm_write_pair(&row, as, form, first, &by);
    }
    for (; first < columns.end; first += BERTH_LANES) {
        const berth_norm_at at = {BERTH_NORM_SINGLE, first, columns.end};
        berth_norm_write_one(&row, as, form, at, &by);
    }
}

BERTH_INLINE void berth_norm_write(const berth_norm_row *row, berth_norm_kind as,
                                   berth_norm_form form) {
    for (int64_t first = 0; first < row->hidden; first += row->group) {
        berth_norm_write_span(row, as, form, (berth_span){first, first + row->group});
    }
}

#endif
