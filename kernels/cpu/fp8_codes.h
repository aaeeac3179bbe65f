// SPDX-License-Identifier: Apache-2.0
// Vectors of floats to codes of f8_e4m3fn, the same bits as berth_to_f8 gives, and back.
#ifndef BERTH_KERNELS_CPU_FP8_CODES_H
#define BERTH_KERNELS_CPU_FP8_CODES_H

#include <cpu/simd.h>

#include <fp8.h>

BERTH_INLINE berth_vec_ints vec_magnitude(berth_vec x) {
    return (berth_vec_ints)((berth_vec_bits)x & 0x7fffffffu);
}

// berth_to_f8 of every lane.
BERTH_INLINE berth_vec_bytes vec_to_f8(berth_vec x) {
    const berth_vec magnitude = (berth_vec)vec_magnitude(x);
    const berth_vec finite = berth_vec_min(berth_vec_of(BERTH_F8_MAX), magnitude); // or NaN
    const berth_vec_bits bits = (berth_vec_bits)finite;
    const berth_vec_bits normal = (bits + (0x7ffffu - 0x3c000000u) + (bits >> 20 & 1u)) >> 20;
    const berth_vec_bits shifted = (berth_vec_bits)(finite + berth_vec_of(0x1p14f)) - 0x46800000u;
    const berth_vec code =
        berth_vec_if_less(finite, berth_vec_of(0x1p-6f), (berth_vec)shifted, (berth_vec)normal);
    const berth_vec_bits nan = (berth_vec_bits){0} + 0x7fu;
    const berth_vec kept =
        berth_vec_if_less(finite, berth_vec_of(2 * BERTH_F8_MAX), code, (berth_vec)nan);
    return berth_vec_narrow_twice(((berth_vec_bits)x >> 24 & 0x80u) | (berth_vec_bits)kept);
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
