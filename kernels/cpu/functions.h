// SPDX-License-Identifier: Apache-2.0
// Functions of a vector that activations are made of, in float32: sigmoid, tanh, erf. A NaN goes
// through.
#ifndef BERTH_KERNELS_CPU_FUNCTIONS_H
#define BERTH_KERNELS_CPU_FUNCTIONS_H

#include <cpu/simd.h>

// `a` in the lanes where the comparison holds, else `b`.
BERTH_INLINE berth_vec berth_vec_pick(berth_vec_ints holds, berth_vec a, berth_vec b) {
    const berth_vec_bits mask = (berth_vec_bits)holds;
    return (berth_vec)(((berth_vec_bits)a & mask) | ((berth_vec_bits)b & ~mask));
}

BERTH_INLINE berth_vec berth_vec_at_most(berth_vec a, berth_vec limit) {
    return berth_vec_min(limit, a);
}

BERTH_INLINE berth_vec berth_vec_clamp(berth_vec a, berth_vec limit) {
    return berth_vec_max(-limit, berth_vec_min(limit, a));
}

// 1 + 2^x within 3 units in the last place. Why not rest and scale: beside 1 nothing is left of
// what they take care of, subnormal numbers, and sigmoids take a fifth less time. The polynomial
// is fitted to 2^x from 0 to 1 with the smallest relative error, 2^-23.5.
BERTH_INLINE berth_vec berth_vec_exp2_beside_one(berth_vec x) {
    static const float near[] = {0x1p+0f,        0x1.62e4bap-1f, 0x1.ebdb6ap-3f,
                                 0x1.c91c10p-5f, 0x1.277c1cp-7f, 0x1.e96910p-10f};
    const berth_vec part = berth_vec_part(x);
    return berth_vec_of(1) + berth_vec_raise(berth_vec_polynomial(near, 6, part), x, part);
}

// 1 + e^−x: what sigmoids divide by.
BERTH_INLINE berth_vec berth_vec_sigmoid_base(berth_vec x) {
    return berth_vec_exp2_beside_one(berth_vec_of(-0x1.715476p+0f) * x);
}

BERTH_INLINE berth_vec berth_vec_sigmoid(berth_vec x) {
    return berth_vec_reciprocal(berth_vec_sigmoid_base(x));
}

BERTH_INLINE berth_vec berth_vec_silu(berth_vec x) {
    return x * berth_vec_sigmoid(x);
}

// A quotient, for who has more to divide by.
typedef struct berth_vec_ratio {
    berth_vec over;
    berth_vec under;
} berth_vec_ratio;

// tanh within 4 units in the last place: x·p(x²) / q(x²), fitted to the smallest relative error up
// to 9, beyond which the result is ±1.
BERTH_INLINE berth_vec_ratio berth_vec_tanh_ratio(berth_vec x) {
    static const float over[] = {0x1p+0f, 0x1.12076ap-3f, 0x1.ca105ap-9f, 0x1.5987e2p-16f,
                                 0x1.ca3336p-27f};
    static const float under[] = {0x1p+0f, 0x1.de58fep-2f, 0x1.a7ea92p-6f, 0x1.58613cp-12f,
                                  0x1.a11416p-21f};
    const berth_vec near = berth_vec_clamp(x, berth_vec_of(9));
    const berth_vec square = near * near;
    return (berth_vec_ratio){near * berth_vec_polynomial(over, 5, square),
                             berth_vec_polynomial(under, 5, square)};
}

BERTH_INLINE berth_vec berth_vec_tanh(berth_vec x) {
    const berth_vec_ratio ratio = berth_vec_tanh_ratio(x);
    return ratio.over * berth_vec_reciprocal(ratio.under);
}

// 1 + erf(x/√2) as 1 + x·p(x²) / q(x²), fitted to the smallest absolute error of the product with
// x, 2^-24 before roundings and 2^-19 with them, up to ±5.5; below it is 0, as in float32.
BERTH_INLINE berth_vec berth_vec_erf_base(berth_vec x) {
    static const float over[] = {0x1.988440p-1f,  0x1.1fe0bcp-4f,  0x1.380d58p-7f,
                                 0x1.7f7340p-12f, 0x1.b63ba6p-17f, 0x1.7da31ap-25f};
    static const float under[] = {0x1p+0f,        0x1.04dd28p-2f,  0x1.e1a876p-6f,
                                  0x1.0135f0p-9f, 0x1.49af20p-14f, 0x1.40dca6p-20f};
    const berth_vec edge = berth_vec_of(5.5f);
    const berth_vec near = berth_vec_clamp(x, edge);
    const berth_vec square = near * near;
    const berth_vec ratio = berth_vec_polynomial(over, 6, square) *
                            berth_vec_reciprocal(berth_vec_polynomial(under, 6, square));
    const berth_vec base =
        berth_vec_min(berth_vec_of(2), berth_vec_fma(near, ratio, berth_vec_of(1)));
    return berth_vec_pick((berth_vec_ints)(x < -edge), berth_vec_of(0), base);
}

#endif
