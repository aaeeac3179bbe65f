// SPDX-License-Identifier: Apache-2.0
// What the kernels of ropes share: cosines and sines of angles, and pairs of a head turned by them.
#ifndef BERTH_KERNELS_CPU_ROPE_TURN_H
#define BERTH_KERNELS_CPU_ROPE_TURN_H

#include <cpu/cpu.h>
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

// What a head's loop is compiled for.
typedef struct rope_kind {
    berth_dtype dtype;
    int is_past; // its full vectors are stored past the caches
} rope_kind;

BERTH_INLINE void rope_store(rope_kind as, char *out, int64_t first, berth_vec a) {
    if (as.is_past) {
        berth_vec_pass_as(out, as.dtype, first, a);
    } else {
        berth_vec_store_as(out, as.dtype, first, a);
    }
}

// Pair i is (i, half + i).
BERTH_INLINE void rotate_halves(const float *circle, const char *x, char *out, rope_kind as,
                                int64_t half) {
    const int64_t bytes = half * (BERTH_DTYPE_BITS(as.dtype) / 8);
    int64_t i = 0;
    for (; i + BERTH_LANES <= half; i += BERTH_LANES) {
        const berth_vec cosine = berth_vec_load(circle + i);
        const berth_vec sine = berth_vec_load(circle + half + i);
        const berth_vec x1 = berth_vec_load_as(x, as.dtype, i);
        const berth_vec x2 = berth_vec_load_as(x + bytes, as.dtype, i);
        rope_store(as, out, i, x1 * cosine - x2 * sine);
        rope_store(as, out + bytes, i, x2 * cosine + x1 * sine);
    }
    if (i < half) {
        const berth_vec cosine = berth_vec_load_part(circle, BERTH_DTYPE_F32, i, half - i);
        const berth_vec sine = berth_vec_load_part(circle + half, BERTH_DTYPE_F32, i, half - i);
        const berth_vec x1 = berth_vec_load_part(x, as.dtype, i, half - i);
        const berth_vec x2 = berth_vec_load_part(x + bytes, as.dtype, i, half - i);
        berth_vec_store_part(out, as.dtype, i, half - i, x1 * cosine - x2 * sine);
        berth_vec_store_part(out + bytes, as.dtype, i, half - i, x2 * cosine + x1 * sine);
    }
}

// Pair i is (2i, 2i + 1).
BERTH_INLINE void rotate_neighbours(const float *circle, const char *x, char *out, rope_kind as,
                                    int64_t half) {
    const berth_dtype dtype = as.dtype;
    int64_t i = 0;
    for (; i + BERTH_LANES <= half; i += BERTH_LANES) {
        const berth_vec cosine = berth_vec_load(circle + i);
        const berth_vec sine = berth_vec_load(circle + half + i);
        const berth_vec low = berth_vec_load_as(x, dtype, 2 * i);
        const berth_vec high = berth_vec_load_as(x, dtype, 2 * i + BERTH_LANES);
        const berth_vec x1 = berth_vec_even(low, high);
        const berth_vec x2 = berth_vec_odd(low, high);
        const berth_vec y1 = x1 * cosine - x2 * sine;
        const berth_vec y2 = x2 * cosine + x1 * sine;
        rope_store(as, out, 2 * i, berth_vec_low(y1, y2));
        rope_store(as, out, 2 * i + BERTH_LANES, berth_vec_high(y1, y2));
    }
    for (; i < half; ++i) {
        const float cosine = circle[i];
        const float sine = circle[half + i];
        const float x1 = berth_load_at(x, dtype, 2 * i);
        const float x2 = berth_load_at(x, dtype, 2 * i + 1);
        berth_store_at(out, dtype, 2 * i, x1 * cosine - x2 * sine);
        berth_store_at(out, dtype, 2 * i + 1, x2 * cosine + x1 * sine);
    }
}

#endif
