// SPDX-License-Identifier: Apache-2.0
// Vectors of floats to codes of f8_e4m3fn, the same bits as berth_to_f8 gives.
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

#endif
