// SPDX-License-Identifier: Apache-2.0
// The words of simd.h that mean the same in every instruction set: rows of any float dtype, the
// lanes of a vector among each other, e^x. Comes with simd.h.
#ifndef BERTH_KERNELS_CPU_VEC_H
#define BERTH_KERNELS_CPU_VEC_H

#include <cpu/simd.h>

BERTH_INLINE berth_vec berth_vec_load(const void *from) {
    berth_vec a;
    memcpy(&a, from, sizeof a);
    return a;
}

BERTH_INLINE void berth_vec_store(float *to, berth_vec a) {
    memcpy(to, &a, sizeof a);
}

// The 32 bits at an address, which need not be aligned, in every lane.
BERTH_INLINE berth_vec berth_vec_of_bits(const void *from) {
    float value;
    memcpy(&value, from, sizeof value);
    return berth_vec_of(value);
}

BERTH_INLINE berth_vec berth_vec_load_bf16(const uint16_t *from) {
    berth_vec_halves halves;
    memcpy(&halves, from, sizeof halves);
    return (berth_vec)(berth_vec_widen(halves) << 16);
}

BERTH_INLINE berth_vec_halves berth_vec_to_bf16(berth_vec a) {
    return berth_vec_narrow(berth_vec_round_bf16(a) >> 16);
}

// Of BERTH_LANES pairs of bf16: the first of each, and the second.
BERTH_INLINE berth_vec berth_vec_first_of(berth_vec pairs) {
    return (berth_vec)((berth_vec_bits)pairs << 16);
}

BERTH_INLINE berth_vec berth_vec_second_of(berth_vec pairs) {
    return (berth_vec)((berth_vec_bits)pairs & 0xffff0000u);
}

BERTH_INLINE berth_vec berth_vec_first(const void *pairs) {
    return berth_vec_first_of(berth_vec_load(pairs));
}

BERTH_INLINE berth_vec berth_vec_second(const void *pairs) {
    return berth_vec_second_of(berth_vec_load(pairs));
}

// Rows become columns. berth_vec_low and _high give the lower and the upper halves of two vectors
// by turns; each round halves the distance between neighbours of a column.
BERTH_INLINE void berth_vec_transpose(berth_vec rows[BERTH_LANES]) {
    BERTH_UNROLL
    for (int round = 1; round < BERTH_LANES; round *= 2) {
        berth_vec next[BERTH_LANES];
        BERTH_UNROLL
        for (int i = 0; i < BERTH_LANES / 2; ++i) {
            next[2 * i] = berth_vec_low(rows[i], rows[i + BERTH_LANES / 2]);
            next[2 * i + 1] = berth_vec_high(rows[i], rows[i + BERTH_LANES / 2]);
        }
        BERTH_UNROLL
        for (int i = 0; i < BERTH_LANES; ++i) {
            rows[i] = next[i];
        }
    }
}

// The sum and the largest of the lanes. Each round folds the upper half onto the lower one, which
// then fills all lanes.
BERTH_INLINE float berth_vec_sum(berth_vec a) {
    BERTH_UNROLL
    for (int round = 1; round < BERTH_LANES; round *= 2) {
        a = berth_vec_low(a, a) + berth_vec_high(a, a);
    }
    return a[0];
}

BERTH_INLINE float berth_vec_largest(berth_vec a) {
    BERTH_UNROLL
    for (int round = 1; round < BERTH_LANES; round *= 2) {
        a = berth_vec_max(berth_vec_low(a, a), berth_vec_high(a, a));
    }
    return a[0];
}

// Elements [first, first + BERTH_LANES) of a row.
BERTH_INLINE berth_vec berth_vec_load_as(const void *row, berth_dtype dtype, int64_t first) {
    return dtype == BERTH_DTYPE_F32    ? berth_vec_load((const float *)row + first)
           : dtype == BERTH_DTYPE_BF16 ? berth_vec_load_bf16((const uint16_t *)row + first)
                                       : berth_vec_load_f16((const uint16_t *)row + first);
}

// Of one of the two dtypes of 16 bits.
BERTH_INLINE berth_vec_halves berth_vec_to_halves(berth_dtype dtype, berth_vec a) {
    return dtype == BERTH_DTYPE_BF16 ? berth_vec_to_bf16(a) : berth_vec_to_f16(a);
}

BERTH_INLINE void berth_vec_store_as(void *row, berth_dtype dtype, int64_t first, berth_vec a) {
    if (dtype == BERTH_DTYPE_F32) {
        berth_vec_store((float *)row + first, a);
    } else {
        const berth_vec_halves halves = berth_vec_to_halves(dtype, a);
        memcpy((uint16_t *)row + first, &halves, sizeof halves);
    }
}

// `count` elements, at most BERTH_LANES; the other lanes are zero.
BERTH_SELDOM berth_vec berth_vec_load_part(const void *row, berth_dtype dtype, int64_t first,
                                           int64_t count) {
    float lanes[BERTH_LANES] = {0};
    berth_load(row, dtype, first, count, lanes);
    return berth_vec_load(lanes);
}

BERTH_SELDOM void berth_vec_store_part(void *row, berth_dtype dtype, int64_t first, int64_t count,
                                       berth_vec a) {
    for (int64_t lane = 0; lane < count; ++lane) {
        berth_store_at(row, dtype, first + lane, a[lane]);
    }
}

// Zero in the lanes from `count` on.
BERTH_SELDOM berth_vec berth_vec_cut(berth_vec a, int64_t count) {
    float lanes[BERTH_LANES];
    berth_vec_store(lanes, a);
    return berth_vec_load_part(lanes, BERTH_DTYPE_F32, 0, count < 0 ? 0 : count);
}

// Elements [first, first + BERTH_LANES) of a row up to `end`; lanes behind are zero and not stored.
BERTH_INLINE berth_vec berth_vec_load_some(const void *row, berth_dtype dtype, int64_t first,
                                           int64_t end) {
    const int64_t count = end - first;
    return count >= BERTH_LANES ? berth_vec_load_as(row, dtype, first)
           : count > 0          ? berth_vec_load_part(row, dtype, first, count)
                                : berth_vec_of(0);
}

BERTH_INLINE void berth_vec_store_some(void *row, berth_dtype dtype, int64_t first, int64_t end,
                                       berth_vec a) {
    if (end - first >= BERTH_LANES) {
        berth_vec_store_as(row, dtype, first, a);
    } else {
        berth_vec_store_part(row, dtype, first, end - first, a);
    }
}

// A row's elements in another float dtype, or the same.
BERTH_INLINE void berth_vec_copy(void *to, berth_dtype to_dtype, const void *from,
                                 berth_dtype from_dtype, int64_t count) {
    if (to_dtype == from_dtype) {
        memmove(to, from, (size_t)count * BERTH_DTYPE_BITS(to_dtype) / 8);
        return;
    }
    for (int64_t first = 0; first < count; first += BERTH_LANES) {
        berth_vec_store_some(to, to_dtype, first, count,
                             berth_vec_load_some(from, from_dtype, first, count));
    }
}

// The value that a store of that dtype would keep.
BERTH_INLINE berth_vec berth_vec_round_to(berth_dtype dtype, berth_vec a) {
    if (dtype == BERTH_DTYPE_BF16) {
        return (berth_vec)(berth_vec_round_bf16(a) & 0xffff0000u);
    }
    if (dtype == BERTH_DTYPE_F16) {
        const berth_vec_halves halves = berth_vec_to_f16(a);
        return berth_vec_load_f16((const uint16_t *)&halves);
    }
    return a;
}

// ---- stores that go past the caches -------------------------------------------------------------

// Bytes of a call's outputs from which on nobody finds them in a cache of his own later: then a
// line that is written need not be read first, which is a third of a copy's traffic.
#define BERTH_PAST_BYTES (1 << 20)

// Whether the outputs of a call are so many.
static inline int berth_is_past(int64_t elements, berth_dtype dtype) {
    return elements * (BERTH_DTYPE_BITS(dtype) / 8) >= BERTH_PAST_BYTES;
}

// Whether the full vectors of a row, and those of pairs, may be stored past the caches.
static inline int berth_vec_can_pass(const void *row) {
    return (uintptr_t)row % sizeof(berth_vec) == 0;
}

// As berth_vec_store_as, of a row that berth_vec_can_pass.
BERTH_INLINE void berth_vec_pass_as(void *row, berth_dtype dtype, int64_t first, berth_vec a) {
    if (dtype == BERTH_DTYPE_F32) {
        berth_vec_store_past((float *)row + first, a);
    } else {
        berth_vec_store_halves_past((uint16_t *)row + first, berth_vec_to_halves(dtype, a));
    }
}

// Bytes of rows of any dtype; a target that is not as aligned as a vector is copied as ever.
BERTH_INLINE void berth_copy_past(void *to, const void *from, size_t bytes) {
    const size_t whole =
        (uintptr_t)to % sizeof(berth_vec) == 0 ? bytes / sizeof(berth_vec) * sizeof(berth_vec) : 0;
    for (size_t i = 0; i < whole; i += sizeof(berth_vec)) {
        berth_vec_store_past((char *)to + i, berth_vec_load((const char *)from + i));
    }
    memcpy((char *)to + whole, (const char *)from + whole, bytes - whole);
}

// ---- powers -------------------------------------------------------------------------------------

// The polynomial of x with `count` coefficients, the constant one first.
BERTH_INLINE berth_vec berth_vec_polynomial(const float *coefficients, int count, berth_vec x) {
    berth_vec sum = berth_vec_of(coefficients[count - 1]);
    BERTH_UNROLL
    for (int i = count - 2; i >= 0; --i) {
        sum = berth_vec_fma(sum, x, berth_vec_of(coefficients[i]));
    }
    return sum;
}

// e^x within 2 units in the last place; subnormal results, infinities and NaN as expf gives them.
BERTH_INLINE berth_vec berth_vec_exp(berth_vec x) {
    static const float near[] = {1.0f,      1.0f,       0.5f,       1.0f / 6,
                                 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040};
    const berth_vec far = berth_vec_of(128); // there the result is 0 or infinite
    const berth_vec some = berth_vec_max(-far, berth_vec_min(far, x));
    const berth_vec power = some * berth_vec_of(0x1.715476p+0f);
    const berth_vec rest = berth_vec_rest(power);
    const berth_vec whole = power - rest;
    // x = n·ln 2 + r with |r| ≤ ln 2 / 2, ln 2 in two parts: the product with the first is exact.
    berth_vec r = berth_vec_fma(whole, berth_vec_of(-0x1.62e4p-1f), some);
    r = berth_vec_fma(whole, berth_vec_of(-0x1.7f7d1cp-20f), r);
    return berth_vec_scale(berth_vec_polynomial(near, 8, r), power, rest);
}

#endif
