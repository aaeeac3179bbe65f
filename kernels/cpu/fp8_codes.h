// SPDX-License-Identifier: Apache-2.0
// Vectors of floats to codes of f8_e4m3fn, the same bits as berth_to_f8 gives.
#ifndef BERTH_KERNELS_CPU_FP8_CODES_H
#define BERTH_KERNELS_CPU_FP8_CODES_H

#include <cpu/simd.h>

BERTH_INLINE berth_vec_ints vec_magnitude(berth_vec x) {
    return (berth_vec_ints)((berth_vec_bits)x & 0x7fffffffu);
}

BERTH_INLINE berth_vec_ints vec_larger(berth_vec_ints a, berth_vec_ints b) {
    const berth_vec_ints is_larger = a > b;
    return (a & is_larger) | (b & ~is_larger);
}

typedef uint8_t vec_bytes __attribute__((vector_size(BERTH_LANES)));

// berth_to_f8 of every lane.
BERTH_INLINE vec_bytes vec_to_f8(berth_vec x) {
    const berth_vec_bits bits = (berth_vec_bits)x;
    const berth_vec_ints magnitude = vec_magnitude(x);
    const berth_vec_bits is_nan = (berth_vec_bits)(magnitude > 0x7f800000);
    const berth_vec_ints most = (berth_vec_ints){0} + 0x43e00000;
    const berth_vec_bits finite =
        (berth_vec_bits)(most - vec_larger(most - magnitude, (berth_vec_ints){0}));
    const berth_vec_bits normal = (finite - 0x3c000000u + 0x7ffffu + (finite >> 20 & 1u)) >> 20;
    const berth_vec_bits shifted =
        (berth_vec_bits)((berth_vec)finite + berth_vec_of(0x1p14f)) - 0x46800000u;
    const berth_vec_bits is_small = (berth_vec_bits)((berth_vec_ints)finite < 0x3c800000);
    const berth_vec_bits code = (shifted & is_small) | (normal & ~is_small);
    const berth_vec_bits kept = (code & ~is_nan) | (is_nan & 0x7fu);
    return __builtin_convertvector((bits >> 24 & 0x80u) | kept, vec_bytes);
}

#endif
