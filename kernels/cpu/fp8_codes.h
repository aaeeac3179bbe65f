// SPDX-License-Identifier: Apache-2.0
// Vectors of floats to codes of f8_e4m3fn, the same bits as berth_to_f8 gives, and back.
#ifndef BERTH_KERNELS_CPU_FP8_CODES_H
#define BERTH_KERNELS_CPU_FP8_CODES_H

#include <cpu/simd.h>

#include <fp8.h>

// A number beside 2^20 times the power of two with which it begins, at least 2^-6. The last place
// of such a sum is that of a code, so it is rounded as one, and its lowest bits are 8 to 16, or 0
// to 8 of a subnormal code. Why 3 more: so much more has them that eight times the sum's exponent,
// whose bias then is a multiple of 128, can be added.
BERTH_INLINE berth_vec_bits vec_f8_beside(berth_vec x) {
    const berth_vec power = berth_vec_power(x, 0x1p-6f);
    return (berth_vec_bits)berth_vec_fma(power, berth_vec_of(0x1p20f + 3), x);
}

// The number of the code of x, which is not NaN.
BERTH_INLINE berth_vec vec_f8_near(berth_vec x) {
    const berth_vec_bits sign = (berth_vec_bits)x & 0x80000000u;
    const berth_vec bound = berth_vec_bound(x, berth_vec_of(BERTH_F8_MAX));
    const berth_vec power = berth_vec_power(bound, 0x1p-6f) * berth_vec_of(0x1p20f);
    return (berth_vec)((berth_vec_bits)((power + bound) - power) | sign);
}

// Codes of such sums of two vectors, more by VEC_F8_BASE, from their upper and lower halves, the
// upper ones without the signs. They are too large from VEC_F8_BASE + 127 on, those of infinity are
// VEC_F8_INFINITY and those of NaN still larger, if what stands at their end does not overflow.
#define VEC_F8_BASE     (8 * (127 + 20 - 6 - 1 + 4))
#define VEC_F8_INFINITY (8 * 255)
BERTH_INLINE berth_vec_words vec_f8_codes(berth_vec_words upper, berth_vec_words lower) {
    return (upper >> 4) + lower;
}

BERTH_INLINE berth_vec_words vec_f8_signed(berth_vec_words codes, berth_vec_words upper) {
    const berth_vec_words sign = upper >> 8; // and what the code is put over
    return sign ^ ((sign ^ codes) & 0x7f);
}

// The same of bytes; `upper` has the signs.
BERTH_INLINE berth_vec_bits vec_f8_signed_bytes(berth_vec_bits codes, berth_vec_bits upper) {
    return upper ^ ((upper ^ codes) & 0x7f7f7f7fu);
}

// Which bytes of two vectors of words: the lower ones; the upper ones are behind them.
typedef uint8_t vec_f8_bytes __attribute__((vector_size(BERTH_LANES * 4)));
BERTH_INLINE vec_f8_bytes vec_f8_lower_bytes(void) {
    vec_f8_bytes even;
    for (int i = 0; i < 4 * BERTH_LANES; ++i) {
        even[i] = (uint8_t)(2 * i);
    }
    return even;
}

// berth_to_f8 of every lane, of any product or quotient, which is no signalling NaN. What is too
// large is bound, so is a quiet NaN, and its code is the next one.
BERTH_INLINE berth_vec_bytes vec_to_f8(berth_vec x) {
    const berth_vec same = x; // only a NaN differs from itself
    const berth_vec_bits sign = (berth_vec_bits)x & 0x80000000u;
    const berth_vec_bits bound = (berth_vec_bits)berth_vec_bound(x, berth_vec_of(BERTH_F8_MAX));
    const berth_vec_bits beside = vec_f8_beside((berth_vec)(bound | sign));
    const berth_vec_bits codes = (beside & 0x3fu) + (beside >> 20) - (berth_vec_bits)(x != same);
    return berth_vec_narrow_twice((codes & 0x7fu) | (beside >> 24 & 0x80u));
}

// Codes [first, first + BERTH_LANES) of a row of `count`, of x / scale; x are those numbers of
// another row.
BERTH_INLINE void vec_store_f8(uint8_t *row, int64_t first, int64_t count, berth_vec x,
                               float scale) {
    const berth_vec_bytes codes = vec_to_f8(x / berth_vec_of(scale));
    const int64_t left = count - first;
    memcpy(row + first, &codes, (size_t)(left < BERTH_LANES ? left : BERTH_LANES));
}

// What code · scale becomes of a row of codes that ends at `end`; lanes behind are zero. `scale` is
// 2^8 times the scale: codes are widened as f16, whose exponents begin lower.
#define VEC_F8_SCALE 0x1p8f
BERTH_INLINE berth_vec vec_load_f8(const uint8_t *row, int64_t first, int64_t end, float scale) {
    const int64_t left = end - first;
    berth_vec_bytes codes = {0};
    if (left >= BERTH_LANES) {
        memcpy(&codes, row + first, sizeof codes);
    } else if (left > 0) {
        memcpy(&codes, row + first, (size_t)left);
    }
    const berth_vec_halves wide = __builtin_convertvector(codes, berth_vec_halves);
    const berth_vec_halves is_nan = (berth_vec_halves)((wide & 0x7f) == 0x7f) & 0x7e00;
    const berth_vec_halves halves = (wide & 0x7f) << 7 | (wide & 0x80) << 8 | is_nan;
    return berth_vec_load_f16((const uint16_t *)&halves) * berth_vec_of(scale);
}

#endif
