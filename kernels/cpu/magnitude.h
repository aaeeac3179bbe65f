// SPDX-License-Identifier: Apache-2.0
// The magnitudes of a row, for the kernels that make a scale of the largest one, and how their
// codes are stored.
#ifndef BERTH_KERNELS_CPU_MAGNITUDE_H
#define BERTH_KERNELS_CPU_MAGNITUDE_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

BERTH_INLINE berth_vec_ints berth_vec_magnitude(berth_vec x) {
    return (berth_vec_ints)((berth_vec_bits)x & 0x7fffffffu);
}

// A vector of codes.
BERTH_INLINE void berth_vec_put_codes(int is_past, void *to, berth_vec codes) {
    if (is_past) {
        berth_vec_store_past(to, codes);
    } else {
        memcpy(to, &codes, sizeof codes);
    }
}

typedef enum berth_sweep_turn { BERTH_SWEEP_LARGEST, BERTH_SWEEP_CODES } berth_sweep_turn;

#define BERTH_SWEEP_LEAD 4096 // bytes

// What each of the two sweeps over a row fetches of the next one, while it is at some columns of
// `width`. Why half each in 16 bits: one alone would wait for the memory, and the other leave it
// idle (0.63 of a copy's speed and not 0.5). In float32 the second does all (0.65 and not 0.5), and
// some bytes of the row after that, so that the last ones are there when they are looked at (0.78).
BERTH_INLINE void berth_vec_fetch_next(berth_sweep_turn turn, berth_dtype dtype, const void *next,
                                       int64_t width, berth_span columns) {
    const int64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    const int64_t shares = dtype == BERTH_DTYPE_F32 ? 1 : 2;
    const int64_t begin = shares == 2 && turn == BERTH_SWEEP_CODES ? width * bytes / 2 : 0;
    const int64_t count = (columns.end - columns.first) * bytes / shares;
    const int64_t lead = shares == 1 ? BERTH_SWEEP_LEAD : 0;
    const char *from = (const char *)next + begin + lead + columns.first * bytes / shares;
    if (shares == 2 || turn == BERTH_SWEEP_CODES) {
        BERTH_UNROLL
        for (int64_t byte = 0; byte < count; byte += 64) {
            BERTH_PREFETCH(from + byte);
        }
    }
}

// The largest magnitude of some columns of a row; `next` is the row after it, or NULL. Why
// integers: magnitudes order as they do, and a NaN is above all of them.
BERTH_INLINE float berth_vec_largest_as(const void *row, berth_dtype dtype, berth_span columns,
                                        const void *next) {
    berth_vec_ints largest[2] = {{0}};
    int64_t i = columns.first;
    for (; i + 2 * BERTH_LANES <= columns.end; i += 2 * BERTH_LANES) {
        berth_vec x[2];
        if (next) {
            berth_vec_fetch_next(BERTH_SWEEP_LARGEST, dtype, next, 0,
                                 (berth_span){i, i + 2 * BERTH_LANES});
        }
        if (dtype == BERTH_DTYPE_BF16) { // what stands behind a number changes no order
            x[1] = berth_vec_load((const uint16_t *)row + i);
            x[0] = berth_vec_first_of(x[1]);
        } else {
            x[0] = berth_vec_load_as(row, dtype, i);
            x[1] = berth_vec_load_as(row, dtype, i + BERTH_LANES);
        }
        BERTH_UNROLL
        for (int k = 0; k < 2; ++k) {
            largest[k] = berth_vec_larger(berth_vec_magnitude(x[k]), largest[k]);
        }
    }
    if (dtype == BERTH_DTYPE_BF16) {
        largest[1] &= (int32_t)0x7fff0000;
    }
    for (; i < columns.end; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(row, dtype, i, columns.end);
        largest[0] = berth_vec_larger(berth_vec_magnitude(x), largest[0]);
    }
    largest[0] = berth_vec_larger(largest[0], largest[1]);
    BERTH_UNROLL
    for (int round = 1; round < BERTH_LANES; round *= 2) {
        const berth_vec folded = (berth_vec)largest[0];
        largest[0] = berth_vec_larger((berth_vec_ints)berth_vec_low(folded, folded),
                                      (berth_vec_ints)berth_vec_high(folded, folded));
    }
    return berth_float_of_bits((uint32_t)largest[0][0]);
}

static inline float berth_vec_largest_of(const void *row, berth_dtype dtype, berth_span columns,
                                         const void *next) {
    return dtype == BERTH_DTYPE_F32    ? berth_vec_largest_as(row, BERTH_DTYPE_F32, columns, next)
           : dtype == BERTH_DTYPE_BF16 ? berth_vec_largest_as(row, BERTH_DTYPE_BF16, columns, next)
                                       : berth_vec_largest_as(row, BERTH_DTYPE_F16, columns, next);
}

#endif
