// SPDX-License-Identifier: Apache-2.0
// The magnitudes of a row, for the kernels that make a scale of the largest one, and how their
// codes are stored.
#ifndef BERTH_KERNELS_CPU_MAGNITUDE_H
#define BERTH_KERNELS_CPU_MAGNITUDE_H

#include <cpu/cpu.h>
#include <cpu/reads.h>

BERTH_INLINE berth_vec_ints berth_vec_magnitude(berth_vec x) {
    return (berth_vec_ints)((berth_vec_bits)x & 0x7fffffffu);
}

// The lower bytes of words that were made of numbers of `dtype`: of bf16 by turns, else in order.
BERTH_INLINE berth_vec_bits berth_vec_pack_as(berth_dtype dtype, berth_vec_words ab,
                                              berth_vec_words cd) {
    return dtype == BERTH_DTYPE_BF16 ? berth_vec_pack_turns(ab, cd) : berth_vec_pack(ab, cd);
}

// A vector of codes.
BERTH_INLINE void berth_vec_put_codes(int is_past, void *to, berth_vec codes) {
    if (is_past) {
        berth_vec_store_past(to, codes);
    } else {
        memcpy(to, &codes, sizeof codes);
    }
}

// Bytes from what is worked at to what is fetched; both less and more are slower. FAR: reads.h.
#define BERTH_SWEEP_LEAD     10240
#define BERTH_SWEEP_LEAD_FAR 16384

// The largest magnitudes of a row, as far as it has been looked at. Why integers: magnitudes order
// as they do, and a NaN is above all of them; of bf16 they are words.
#define BERTH_LARGEST_STEP ((int64_t)(4 * BERTH_LANES)) // columns
typedef struct berth_vec_largest_so_far {
    berth_vec_ints of[2];
} berth_vec_largest_so_far;

BERTH_INLINE berth_vec_ints berth_vec_larger_of_two(const void *row, berth_dtype dtype,
                                                    int64_t first, berth_vec_ints than) {
    if (dtype == BERTH_DTYPE_BF16) {
        const berth_vec pairs = berth_vec_load((const uint16_t *)row + first);
        const berth_vec_words sizes = (berth_vec_words)pairs & 0x7fff;
        return (berth_vec_ints)berth_vec_larger_words(sizes, (berth_vec_words)than);
    }
    const berth_vec a = berth_vec_load_as(row, dtype, first);
    const berth_vec b = berth_vec_load_as(row, dtype, first + BERTH_LANES);
    return berth_vec_larger(berth_vec_larger(berth_vec_magnitude(a), berth_vec_magnitude(b)), than);
}

BERTH_INLINE void berth_vec_look(const void *row, berth_dtype dtype, int64_t first,
                                 berth_vec_largest_so_far *largest) {
    const int64_t second = first + BERTH_LARGEST_STEP / 2;
    largest->of[0] = berth_vec_larger_of_two(row, dtype, first, largest->of[0]);
    largest->of[1] = berth_vec_larger_of_two(row, dtype, second, largest->of[1]);
}

// The largest of every lane, as integers; `rest` is what is left of a row after its steps.
BERTH_INLINE berth_vec_ints berth_vec_look_rest(const void *row, berth_dtype dtype, berth_span rest,
                                                const berth_vec_largest_so_far *so_far) {
    berth_vec_largest_so_far largest = *so_far;
    if (dtype == BERTH_DTYPE_BF16) {
        const berth_vec pairs = (berth_vec)berth_vec_larger_words((berth_vec_words)largest.of[0],
                                                                  (berth_vec_words)largest.of[1]);
        largest.of[0] = (berth_vec_ints)berth_vec_first_of(pairs);
        largest.of[1] = (berth_vec_ints)berth_vec_second_of(pairs);
    }
    berth_vec_ints all = berth_vec_larger(largest.of[0], largest.of[1]);
    for (int64_t i = rest.first; i < rest.end; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(row, dtype, i, rest.end);
        all = berth_vec_larger(berth_vec_magnitude(x), all);
    }
    return all;
}

BERTH_INLINE float berth_vec_look_last(const void *row, berth_dtype dtype, berth_span rest,
                                       const berth_vec_largest_so_far *largest) {
    berth_vec_ints all = berth_vec_look_rest(row, dtype, rest, largest);
    BERTH_UNROLL
    for (int round = 1; round < BERTH_LANES; round *= 2) {
        const berth_vec folded = (berth_vec)all;
        all = berth_vec_larger((berth_vec_ints)berth_vec_low(folded, folded),
                               (berth_vec_ints)berth_vec_high(folded, folded));
    }
    return berth_float_of_bits((uint32_t)all[0]);
}

// The largest lanes of each of BERTH_LANES groups, in order, of which each of `count` vectors has
// equally many, one behind the other: neighbours are folded onto each other until one is left.
// `are_words`: the two words of a lane are numbers of their own.
BERTH_INLINE berth_vec berth_vec_largest_each(berth_vec_ints *of, int count, int are_words) {
    BERTH_UNROLL
    for (int left = count / 2; left > 0; left /= 2) {
        BERTH_UNROLL
        for (int i = 0; i < left; ++i) {
            const berth_vec a = (berth_vec)of[2 * i];
            const berth_vec b = (berth_vec)of[2 * i + 1];
            const berth_vec even = berth_vec_even(a, b);
            const berth_vec odd = berth_vec_odd(a, b);
            of[i] = are_words ? (berth_vec_ints)berth_vec_larger_words((berth_vec_words)even,
                                                                       (berth_vec_words)odd)
                              : berth_vec_larger((berth_vec_ints)even, (berth_vec_ints)odd);
        }
    }
    return (berth_vec)of[0];
}

// The largest magnitude of some columns of a row, fetched far ahead or not at all.
BERTH_INLINE float berth_vec_largest_as(const void *row, berth_dtype dtype, berth_span columns,
                                        berth_ahead ahead) {
    berth_vec_largest_so_far largest = {0};
    const int64_t steps = (columns.end - columns.first) / BERTH_LARGEST_STEP;
    for (int64_t turn = 0; turn < steps; ++turn) {
        const int64_t step = berth_step_at(turn, steps, ahead.is_far);
        const int64_t i = columns.first + step * BERTH_LARGEST_STEP;
        if (ahead.is_far) {
            berth_fetch(row, dtype, i, BERTH_LARGEST_STEP, ahead);
        }
        berth_vec_look(row, dtype, i, &largest);
    }
    const berth_span rest = {columns.first + steps * BERTH_LARGEST_STEP, columns.end};
    return berth_vec_look_last(row, dtype, rest, &largest);
}

static inline float berth_vec_largest_ahead(const void *row, berth_dtype dtype, berth_span columns,
                                            berth_ahead ahead) {
    return dtype == BERTH_DTYPE_F32    ? berth_vec_largest_as(row, BERTH_DTYPE_F32, columns, ahead)
           : dtype == BERTH_DTYPE_BF16 ? berth_vec_largest_as(row, BERTH_DTYPE_BF16, columns, ahead)
                                       : berth_vec_largest_as(row, BERTH_DTYPE_F16, columns, ahead);
}

static inline float berth_vec_largest_of(const void *row, berth_dtype dtype, berth_span columns) {
    const berth_ahead nothing = {0};
    return berth_vec_largest_ahead(row, dtype, columns, nothing);
}

// The row whose largest magnitude is found while another one's codes are made.
typedef struct berth_next_row {
    const void *row;
    berth_ahead ahead;
} berth_next_row;

// What the codes of a step of a row do for the next row: they look at it, or fetch it. Why not the
// former in float32: its first sweep over a row finds it in the cache, which makes 0.85 of a copy's
// speed, and looking from row to row 0.76. In 16 bits it is 0.95 that way, and where rows are asked
// for far ahead it is 0.88 of it in float32, too.
BERTH_INLINE int berth_is_looked_at(const berth_next_row *next, berth_dtype dtype) {
    return dtype != BERTH_DTYPE_F32 || next->ahead.is_far;
}

BERTH_INLINE void berth_vec_look_on(const berth_next_row *next, berth_dtype dtype, int64_t first,
                                    berth_vec_largest_so_far *largest) {
    if (berth_is_looked_at(next, dtype)) {
        berth_fetch(next->row, dtype, first, BERTH_LARGEST_STEP, next->ahead);
        berth_vec_look(next->row, dtype, first, largest);
    } else {
        const berth_ahead near = {.bytes = 4096};
        berth_fetch(next->row, dtype, first, BERTH_LARGEST_STEP, near);
    }
}

// The next row's largest magnitude after so many steps.
BERTH_INLINE float berth_vec_look_end(const berth_next_row *next, berth_dtype dtype,
                                      berth_span rest, const berth_vec_largest_so_far *largest) {
    const berth_span columns = {0, rest.end};
    return berth_is_looked_at(next, dtype)
               ? berth_vec_look_last(next->row, dtype, rest, largest)
               : berth_vec_largest_as(next->row, dtype, columns, next->ahead);
}

#endif
