// SPDX-License-Identifier: Apache-2.0
// The words of simd.h that mean the same in every instruction set: rows of any float dtype, the
// lanes of a vector among each other, e^x. Comes with simd.h.
#ifndef BERTH_KERNELS_CPU_VEC_H
#define BERTH_KERNELS_CPU_VEC_H

#include <cpu/simd.h>

typedef uint32_t berth_vec_bits __attribute__((vector_size(BERTH_LANES * 4)));
typedef int32_t berth_vec_ints __attribute__((vector_size(BERTH_LANES * 4)));
typedef uint16_t berth_vec_halves __attribute__((vector_size(BERTH_LANES * 2)));

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
    return (berth_vec)(__builtin_convertvector(halves, berth_vec_bits) << 16);
}

// Rounds as berth_to_bf16 does.
BERTH_INLINE void berth_vec_store_bf16(uint16_t *to, berth_vec a) {
    const berth_vec_bits bits = (berth_vec_bits)a;
    const berth_vec_bits is_nan = (berth_vec_bits)((bits & 0x7fffffffu) > 0x7f800000u);
    const berth_vec_bits rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const berth_vec_bits quiet = bits >> 16 | 0x40u;
    const berth_vec_bits kept = (rounded & ~is_nan) | (quiet & is_nan);
    const berth_vec_halves halves = __builtin_convertvector(kept, berth_vec_halves);
    memcpy(to, &halves, sizeof halves);
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

BERTH_INLINE void berth_vec_store_as(void *row, berth_dtype dtype, int64_t first, berth_vec a) {
    if (dtype == BERTH_DTYPE_F32) {
        berth_vec_store((float *)row + first, a);
    } else if (dtype == BERTH_DTYPE_BF16) {
        berth_vec_store_bf16((uint16_t *)row + first, a);
    } else {
        berth_vec_store_f16((uint16_t *)row + first, a);
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

// Elements [first, first + BERTH_LANES) of a row that ends at `end`; lanes behind it are zero, and
// not stored.
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
    uint16_t halves[BERTH_LANES];
    if (dtype == BERTH_DTYPE_BF16) {
        berth_vec_store_bf16(halves, a);
        return berth_vec_load_bf16(halves);
    }
    if (dtype == BERTH_DTYPE_F16) {
        berth_vec_store_f16(halves, a);
        return berth_vec_load_f16(halves);
    }
    return a;
}

// e^x within 2 units in the last place; subnormal results, infinities and NaN as expf gives them.
BERTH_INLINE berth_vec berth_vec_exp(berth_vec x) {
    // x = n·ln 2 + r with |r| ≤ ln 2 / 2; adding 1.5·2^23 rounds to the integer n in the low bits.
    const berth_vec magic = berth_vec_of(0x1.8p+23f);
    const berth_vec shifted = berth_vec_fma(x, berth_vec_of(0x1.715476p+0f), magic);
    const berth_vec_ints n = (berth_vec_ints)((berth_vec_bits)shifted - (berth_vec_bits)magic);
    const berth_vec whole = shifted - magic;
    // ln 2 in two parts: the product with the first is exact.
    berth_vec r = berth_vec_fma(whole, berth_vec_of(-0x1.62e4p-1f), x);
    r = berth_vec_fma(whole, berth_vec_of(-0x1.7f7d1cp-20f), r);
    berth_vec sum = berth_vec_of(1.0f / 5040);
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f / 720));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f / 120));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f / 24));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f / 6));
    sum = berth_vec_fma(sum, r, berth_vec_of(0.5f));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f));
    // 2^n in two factors, so that each is a normal number for subnormal results too.
    const berth_vec_ints half = n >> 1;
    const berth_vec first = (berth_vec)((berth_vec_bits)(half + 127) << 23);
    const berth_vec second = (berth_vec)((berth_vec_bits)(n - half + 127) << 23);
    const berth_vec_bits value = (berth_vec_bits)(sum * first * second);
    const berth_vec_bits is_small = (berth_vec_bits)(x < -104.0f);
    const berth_vec_bits is_large = (berth_vec_bits)(x > 89.0f);
    return (berth_vec)((value & ~is_small & ~is_large) | (is_large & 0x7f800000u));
}

#endif
