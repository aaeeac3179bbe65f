// SPDX-License-Identifier: Apache-2.0
// Vectors of floats to codes of f8_e4m3fn, the same bits as berth_to_f8 gives, and back.
#ifndef BERTH_KERNELS_CPU_FP8_CODES_H
#define BERTH_KERNELS_CPU_FP8_CODES_H

#include <cpu/simd.h>

#include <fp8.h>

// Codes of numbers that round to BERTH_F8_MAX at most, not yet where they belong: the sign at bit
// 11, the other bits more by VEC_F8_BASE. The last place of a number beside 2^20 times the power of
// two with which it begins is that of its code, so an addition rounds it.
#define VEC_F8_BASE (8 * (127 - 6))
BERTH_INLINE berth_vec_bits vec_f8_words(berth_vec x) {
    const berth_vec power = berth_vec_power(x, 0x1p-6f);
    const berth_vec beside = berth_vec_fma(power, berth_vec_of(0x1p20f), x);
    return ((berth_vec_bits)beside & 0x1fu) + ((berth_vec_bits)power >> 20);
}

// The same of any product or quotient, which is no signalling NaN. A quiet one is bound as what is
// too large is, and its code is the next one.
BERTH_INLINE berth_vec_bits vec_f8_words_of_any(berth_vec x) {
    const berth_vec same = x; // only a NaN differs from itself
    const berth_vec_bits sign = (berth_vec_bits)x & 0x80000000u;
    const berth_vec_bits bound = (berth_vec_bits)berth_vec_bound(x, berth_vec_of(BERTH_F8_MAX));
    return vec_f8_words((berth_vec)(bound | sign)) - (berth_vec_bits)(x != same);
}

// Four vectors of codes.
BERTH_INLINE berth_vec_bits vec_pack_f8(const berth_vec_bits words[4]) {
    berth_vec_words halves[2];
    BERTH_UNROLL
    for (int i = 0; i < 2; ++i) {
        const berth_vec_words codes =
            berth_vec_join(words[2 * i], words[2 * i + 1]) - (uint16_t)VEC_F8_BASE;
        halves[i] = (codes >> 4 & 0x80) | (codes & 0x7f);
    }
    return berth_vec_pack(halves[0], halves[1]);
}

// berth_to_f8 of every lane.
BERTH_INLINE berth_vec_bytes vec_to_f8(berth_vec x) {
    const berth_vec_bits codes = vec_f8_words_of_any(x) - VEC_F8_BASE;
    return berth_vec_narrow_twice((codes >> 4 & 0x80u) | (codes & 0x7fu));
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
