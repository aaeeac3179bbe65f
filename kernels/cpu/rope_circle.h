// SPDX-License-Identifier: Apache-2.0
// Cosines and sines for the kernels of ropes, and the order in which they are kept.
#ifndef BERTH_KERNELS_CPU_ROPE_CIRCLE_H
#define BERTH_KERNELS_CPU_ROPE_CIRCLE_H

#include <cpu/simd.h>

// Cosine and sine of an angle of at least 0 and below 10^6, each rounded once from what is right to
// 40 bits: in plain double arithmetic, which the compiler can vectorise, cosf and sinf it cannot.
BERTH_INLINE void circle_at(double angle, float *out_cosine, float *out_sine) {
    // angle = n·π/2 + r with |r| ≤ π/4; adding 1.5·2^52 rounds to the integer n in the low bits.
    const double shifted = angle * 0x1.45f306dc9c883p-1 + 0x1.8p+52;
    const double whole = shifted - 0x1.8p+52;
    uint64_t n;
    memcpy(&n, &shifted, sizeof n);
    // π/2 in two parts: the product with the first is exact.
    const double r = (angle - whole * 0x1.921fb544p+0) - whole * 0x1.0b4611a626331p-34;
    const double square = r * r;
    double sine = 1.0 / 6227020800;
    sine = sine * square - 1.0 / 39916800;
    sine = sine * square + 1.0 / 362880;
    sine = sine * square - 1.0 / 5040;
    sine = sine * square + 1.0 / 120;
    sine = sine * square - 1.0 / 6;
    sine = (sine * square) * r + r;
    double cosine = 1.0 / 479001600;
    cosine = cosine * square - 1.0 / 3628800;
    cosine = cosine * square + 1.0 / 40320;
    cosine = cosine * square - 1.0 / 720;
    cosine = cosine * square + 1.0 / 24;
    cosine = cosine * square - 0.5;
    cosine = cosine * square + 1.0;
    // Every quarter turn takes cosine to sine and sine to −cosine.
    const double turned_cosine = n & 1 ? sine : cosine;
    const double turned_sine = n & 1 ? cosine : sine;
    *out_cosine = (float)((n + 1) & 2 ? -turned_cosine : turned_cosine);
    *out_sine = (float)(n & 2 ? -turned_sine : turned_sine);
}

BERTH_INLINE int rope_is_by_pairs(berth_dtype dtype, int64_t half) {
    return dtype == BERTH_DTYPE_BF16 && half % (2 * BERTH_LANES) == 0;
}

// The circle of heads of a dtype that are turned by halves, once it is known: where columns come by
// pairs, so do its points.
static inline void rope_order(float *circle, int64_t half, berth_dtype dtype) {
    if (!rope_is_by_pairs(dtype, half)) {
        return;
    }
    for (int64_t i = 0; i < 2 * half; i += 2 * BERTH_LANES) {
        const berth_vec a = berth_vec_load(circle + i);
        const berth_vec b = berth_vec_load(circle + i + BERTH_LANES);
        berth_vec_store(circle + i, berth_vec_even(a, b));
        berth_vec_store(circle + i + BERTH_LANES, berth_vec_odd(a, b));
    }
}

#endif
