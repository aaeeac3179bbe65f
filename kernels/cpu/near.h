// SPDX-License-Identifier: Apache-2.0
// Functions of activations for results in bf16, which keep 8 bits: what a copy of so few bytes
// takes leaves no time for all of float32. A NaN goes through. Sets without BERTH_HAS_TABLE have no
// curves: there all are made of powers of two.
#ifndef BERTH_KERNELS_CPU_NEAR_H
#define BERTH_KERNELS_CPU_NEAR_H

#include <cpu/gelu.h>

// ---- curves -------------------------------------------------------------------------------------

// A function by 31 pieces of degree 2 in x itself, about the whole numbers from -15 to 15, divided
// by the curve's density; those of numbers below 0 stand behind the others. They go through it at
// the three zeros of a Chebyshev polynomial, the one about 0 is x times a line, so that small
// numbers keep their relative precision; the first and the last go on for ever.
#define BERTH_CURVE_TERMS 3

typedef const float (*berth_curve)[BERTH_TABLE];

#define BERTH_CURVE_GELU  3.5f
#define BERTH_CURVE_QUICK 2.5f
#define BERTH_CURVE_TANH  3.5f

// What goes on as x does has this for x²: it vanishes beside 1 and leaves infinity what it is.
#define BERTH_CURVE_LEAST 0x1p-149f

// clang-format off
// Errors: 2^-13.3 of gelu by erf and by tanh, 2^-11.7 of quick_gelu, 2^-10.9 of tanh.
static const float berth_curve_gelu_erf[BERTH_CURVE_TERMS][BERTH_TABLE] = {
    {0, -0x1.0ec9b4p-10f, -0x1.192222p-6f, -0x1.2a3516p-4f, -0x1.65af08p-3f, -0x1.2ff7f6p-2f, -0x1.93b416p-2f, -0x1.b92934p-2f, -0x1.99037ap-2f, -0x1.481f2ap-2f, -0x1.cdae9ep-3f, -0x1.1f92dep-3f, -0x1.3f6d5ep-4f, -0x1.3e0e04p-5f, -0x1.1d104p-6f, 0, 0, 0, -0x1.1d104p-6f, -0x1.3e0e04p-5f, -0x1.3f6d5ep-4f, -0x1.1f92dep-3f, -0x1.cdae9ep-3f, -0x1.481f2ap-2f, -0x1.99037ap-2f, -0x1.b92934p-2f, -0x1.93b416p-2f, -0x1.2ff7f6p-2f, -0x1.65af08p-3f, -0x1.2a3516p-4f, -0x1.192222p-6f, -0x1.0ec9b4p-10f},
    {0x1p-1f, 0x1.05cf5ep-1f, 0x1.2b3454p-1f, 0x1.7a8a7ap-1f, 0x1.e308c6p-1f, 0x1.22766ep+0f, 0x1.4281f6p+0f, 0x1.4cd2c8p+0f, 0x1.4570dp+0f, 0x1.34d066p+0f, 0x1.22df4cp+0f, 0x1.1453c6p+0f, 0x1.0a9152p+0f, 0x1.04eeep+0f, 0x1.0213e4p+0f, 0x1p+0f, 0, 0, -0x1.09f1a6p-7f, -0x1.3bb81ep-6f, -0x1.522a26p-5f, -0x1.453c62p-4f, -0x1.16fa5ap-3f, -0x1.a6833p-3f, -0x1.15c33ep-2f, -0x1.334b22p-2f, -0x1.0a07dap-2f, -0x1.13b378p-3f, 0x1.cf73aap-5f, 0x1.0aeb0ep-2f, 0x1.a99758p-2f, 0x1.f46146p-2f},
    {0x1.97d2bep-2f, 0x1.77505p-2f, 0x1.21ed86p-2f, 0x1.663434p-3f, 0x1.28e974p-4f, -0x1.373f72p-9f, -0x1.5d2066p-5f, -0x1.b8095ap-5f, -0x1.81c6dep-5f, -0x1.146338p-5f, -0x1.54f24p-6f, -0x1.72c5eep-7f, -0x1.6812eep-8f, -0x1.3abce8p-9f, -0x1.f1ccdp-11f, BERTH_CURVE_LEAST, 0, 0, -0x1.f1ccdp-11f, -0x1.3abce8p-9f, -0x1.6812eep-8f, -0x1.72c5eep-7f, -0x1.54f24p-6f, -0x1.146338p-5f, -0x1.81c6dep-5f, -0x1.b8095ap-5f, -0x1.5d2066p-5f, -0x1.373f72p-9f, 0x1.28e974p-4f, 0x1.663434p-3f, 0x1.21ed86p-2f, 0x1.77505p-2f},
};

static const float berth_curve_gelu_tanh[BERTH_CURVE_TERMS][BERTH_TABLE] = {
    {0, -0x1.0fea3p-10f, -0x1.19b96p-6f, -0x1.29f41ep-4f, -0x1.64603ep-3f, -0x1.2e861cp-2f, -0x1.92a3dap-2f, -0x1.ba969p-2f, -0x1.9db5e2p-2f, -0x1.4e16f8p-2f, -0x1.d56e2ep-3f, -0x1.1f39f6p-3f, -0x1.313e54p-4f, -0x1.183a98p-5f, -0x1.b9835cp-7f, 0, 0, 0, -0x1.b9835cp-7f, -0x1.183a98p-5f, -0x1.313e54p-4f, -0x1.1f39f6p-3f, -0x1.d56e2ep-3f, -0x1.4e16f8p-2f, -0x1.9db5e2p-2f, -0x1.ba969p-2f, -0x1.92a3dap-2f, -0x1.2e861cp-2f, -0x1.64603ep-3f, -0x1.29f41ep-4f, -0x1.19b96p-6f, -0x1.0fea3p-10f},
    {0x1p-1f, 0x1.05d5a4p-1f, 0x1.2b4eb2p-1f, 0x1.7a837p-1f, 0x1.e26c04p-1f, 0x1.21d858p+0f, 0x1.420116p+0f, 0x1.4cfca4p+0f, 0x1.465eb4p+0f, 0x1.3602bcp+0f, 0x1.23afdp+0f, 0x1.147794p+0f, 0x1.0a313ap+0f, 0x1.0463eep+0f, 0x1.01a042p+0f, 0x1p+0f, 0, 0, -0x1.a04278p-8f, -0x1.18fb66p-6f, -0x1.462738p-5f, -0x1.47794ap-4f, -0x1.1d7e86p-3f, -0x1.b015ep-3f, -0x1.197accp-2f, -0x1.33f292p-2f, -0x1.08045ap-2f, -0x1.0ec2c8p-3f, 0x1.d93fccp-5f, 0x1.0af92p-2f, 0x1.a9629ep-2f, 0x1.f454b6p-2f},
    {0x1.97d1dep-2f, 0x1.772b84p-2f, 0x1.2197e8p-2f, 0x1.65df92p-3f, 0x1.2a9254p-4f, -0x1.86a628p-10f, -0x1.56f862p-5f, -0x1.b7990ap-5f, -0x1.871424p-5f, -0x1.1b7d2p-5f, -0x1.5eaf94p-6f, -0x1.77db1cp-7f, -0x1.5e15b6p-8f, -0x1.1a9f5cp-9f, -0x1.894ed8p-11f, BERTH_CURVE_LEAST, 0, 0, -0x1.894ed8p-11f, -0x1.1a9f5cp-9f, -0x1.5e15b6p-8f, -0x1.77db1cp-7f, -0x1.5eaf94p-6f, -0x1.1b7d2p-5f, -0x1.871424p-5f, -0x1.b7990ap-5f, -0x1.56f862p-5f, -0x1.86a628p-10f, 0x1.2a9254p-4f, 0x1.65df92p-3f, 0x1.2197e8p-2f, 0x1.772b84p-2f},
};

static const float berth_curve_quick_gelu[BERTH_CURVE_TERMS][BERTH_TABLE] = {
    {0, -0x1.64b8b2p-8f, -0x1.14678ep-4f, -0x1.88575ap-3f, -0x1.31092cp-2f, -0x1.58a00ap-2f, -0x1.42d26cp-2f, -0x1.0cc582p-2f, -0x1.9d928p-3f, -0x1.2cdf32p-3f, -0x1.a3dfcep-4f, -0x1.1b9f1ep-4f, -0x1.754e5ap-5f, -0x1.e0e3cap-6f, -0x1.302ce4p-6f, 0, 0, 0, -0x1.302ce4p-6f, -0x1.e0e3cap-6f, -0x1.754e5ap-5f, -0x1.1b9f1ep-4f, -0x1.a3dfcep-4f, -0x1.2cdf32p-3f, -0x1.9d928p-3f, -0x1.0cc582p-2f, -0x1.42d26cp-2f, -0x1.58a00ap-2f, -0x1.31092cp-2f, -0x1.88575ap-3f, -0x1.14678ep-4f, -0x1.64b8b2p-8f},
    {0x1p-1f, 0x1.161248p-1f, 0x1.7ed43ep-1f, 0x1.ff8bcep-1f, 0x1.276cb4p+0f, 0x1.32cb38p+0f, 0x1.2df408p+0f, 0x1.23912cp+0f, 0x1.1936c4p+0f, 0x1.10e722p+0f, 0x1.0ae6d4p+0f, 0x1.06d58p+0f, 0x1.0430eap+0f, 0x1.028688p+0f, 0x1.018004p+0f, 0x1p+0f, 0, 0, -0x1.8004bep-8f, -0x1.434472p-7f, -0x1.0c3a4ep-6f, -0x1.b55fc6p-6f, -0x1.5cda6ep-5f, -0x1.0e721ap-4f, -0x1.936c4ap-4f, -0x1.1c8964p-3f, -0x1.6fa03ap-3f, -0x1.9659bcp-3f, -0x1.3b659cp-3f, 0x1.d0c87ap-11f, 0x1.025786p-2f, 0x1.d3db7p-2f},
    {0x1.b19ed8p-2f, 0x1.581b6cp-2f, 0x1.539b2p-3f, 0x1.38087cp-5f, -0x1.2d7b16p-6f, -0x1.fe719ap-6f, -0x1.b9a8f4p-6f, -0x1.39de7p-6f, -0x1.96506ap-7f, -0x1.f2bc48p-8f, -0x1.27ea3ap-8f, -0x1.5714f4p-9f, -0x1.8711fep-10f, -0x1.b80458p-11f, -0x1.ea0394p-12f, BERTH_CURVE_LEAST, 0, 0, -0x1.ea0394p-12f, -0x1.b80458p-11f, -0x1.8711fep-10f, -0x1.5714f4p-9f, -0x1.27ea3ap-8f, -0x1.f2bc48p-8f, -0x1.96506ap-7f, -0x1.39de7p-6f, -0x1.b9a8f4p-6f, -0x1.fe719ap-6f, -0x1.2d7b16p-6f, 0x1.38087cp-5f, 0x1.539b2p-3f, 0x1.581b6cp-2f},
};

static const float berth_curve_tanh[BERTH_CURVE_TERMS][BERTH_TABLE] = {
    {0, -0x1.51babep-8f, -0x1.9b4272p-6f, -0x1.a6b012p-7f, 0x1.2ce8b2p-4f, 0x1.c54644p-3f, 0x1.8fdd9ep-2f, 0x1.188694p-1f, 0x1.5af542p-1f, 0x1.8db53ep-1f, 0x1.b29382p-1f, 0x1.cc70fep-1f, 0x1.de220ep-1f, 0x1.ea00ecp-1f, 0x1.f1d944p-1f, 0x1p+0f, -0x1p+0f, -0x1p+0f, -0x1.f1d944p-1f, -0x1.ea00ecp-1f, -0x1.de220ep-1f, -0x1.cc70fep-1f, -0x1.b29382p-1f, -0x1.8db53ep-1f, -0x1.5af542p-1f, -0x1.188694p-1f, -0x1.8fdd9ep-2f, -0x1.c54644p-3f, -0x1.2ce8b2p-4f, 0x1.a6b012p-7f, 0x1.9b4272p-6f, 0x1.51babep-8f},
    {0x1.fe43fep-1f, 0x1.1079e6p+0f, 0x1.29a7d2p+0f, 0x1.21fffep+0f, 0x1.ec478ap-1f, 0x1.765b42p-1f, 0x1.07b684p-1f, 0x1.611af2p-2f, 0x1.c92762p-3f, 0x1.21501cp-3f, 0x1.687e76p-4f, 0x1.bc263p-5f, 0x1.0f4d66p-5f, 0x1.494242p-6f, 0x1.8d76d4p-7f, 0, 0, 0, 0x1.8d76d4p-7f, 0x1.494242p-6f, 0x1.0f4d66p-5f, 0x1.bc263p-5f, 0x1.687e76p-4f, 0x1.21501cp-3f, 0x1.c92762p-3f, 0x1.611af2p-2f, 0x1.07b684p-1f, 0x1.765b42p-1f, 0x1.ec478ap-1f, 0x1.21fffep+0f, 0x1.29a7d2p+0f, 0x1.1079e6p+0f},
    {0, -0x1.0476c6p-2f, -0x1.816aacp-2f, -0x1.6efb4ep-2f, -0x1.17d4ecp-2f, -0x1.77caa2p-3f, -0x1.d4b6acp-4f, -0x1.181902p-4f, -0x1.46aeaap-5f, -0x1.77bed6p-6f, -0x1.acc642p-7f, -0x1.e71a04p-8f, -0x1.13fb52p-8f, -0x1.3848a2p-9f, -0x1.611338p-10f, 0, 0, 0, 0x1.611338p-10f, 0x1.3848a2p-9f, 0x1.13fb52p-8f, 0x1.e71a04p-8f, 0x1.acc642p-7f, 0x1.77bed6p-6f, 0x1.46aeaap-5f, 0x1.181902p-4f, 0x1.d4b6acp-4f, 0x1.77caa2p-3f, 0x1.17d4ecp-2f, 0x1.6efb4ep-2f, 0x1.816aacp-2f, 0x1.0476c6p-2f},
};
// clang-format on

// The piece of `near`, at x.
BERTH_INLINE berth_vec berth_vec_piece(berth_curve of, float density, berth_vec near, berth_vec x) {
    const berth_vec magic = berth_vec_of(0x1.8p+23f); // the sum's lowest bits are a whole number
    const berth_vec_bits at = (berth_vec_bits)berth_vec_fma(near, berth_vec_of(density), magic);
    berth_vec sum = berth_vec_table(of[2], at);
    sum = berth_vec_fma(sum, x, berth_vec_table(of[1], at));
    return berth_vec_fma(sum, x, berth_vec_table(of[0], at));
}

BERTH_INLINE berth_vec berth_vec_curve(berth_curve of, float density, berth_vec x) {
    const berth_vec end = berth_vec_of((0.5f * BERTH_TABLE - 0.75f) / density);
    return berth_vec_piece(of, density, berth_vec_bound(x, end), x);
}

// 2^x within 2^-9, relative, from 2^-126 to 2^128; below something smaller, above infinite.
BERTH_INLINE berth_vec berth_vec_exp2_near(berth_vec x) {
    static const float near[] = {0x1.007108p+0f, 0x1.50b5b4p-1f, 0x1.59483p-2f};
    const berth_vec part = berth_vec_part(x);
    return berth_vec_raise(berth_vec_polynomial(near, 3, part), x, part);
}

// ---- of the dtype of a result -------------------------------------------------------------------

// Whether these are for it, and whether curves are.
BERTH_INLINE int berth_is_near(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_BF16;
}

BERTH_INLINE int berth_has_curve(berth_dtype dtype) {
    return BERTH_HAS_TABLE && berth_is_near(dtype);
}

// Where the reference rounds on the way: in bf16 there is no time for that, and none is asked for.
BERTH_INLINE berth_vec berth_vec_round_as(berth_dtype dtype, berth_vec a) {
    return berth_is_near(dtype) ? a : berth_vec_round_to(dtype, a);
}

// over / (1 + 2^power). Why a division: it leaves the multipliers to what surrounds it, which an
// estimate and a step of Newton's method do not.
BERTH_INLINE berth_vec berth_vec_gate_of(berth_dtype dtype, berth_vec over, berth_vec power) {
    if (berth_is_near(dtype)) {
        return over * berth_vec_estimate(berth_vec_of(1) + berth_vec_exp2_near(power));
    }
    return over / berth_vec_exp2_beside_one(power);
}

// over / (1 + e^−by·x)
BERTH_INLINE berth_vec berth_vec_gate_as(berth_dtype dtype, berth_vec over, berth_vec by,
                                         berth_vec x) {
    return berth_vec_gate_of(dtype, over, berth_vec_of(-0x1.715476p+0f) * by * x);
}

// Without curves: gelu by erf is x / (1 + 2^(x·p(x²))) within 2^-15.2, gelu by tanh is that by its
// definition. The bound keeps p below 0.
BERTH_INLINE berth_vec berth_vec_gelu_erf_near(berth_vec x) {
    static const float near[] = {-0x1.268b24p+1f, -0x1.b55a82p-4f, 0x1.09e264p-10f};
    const berth_vec square = berth_vec_min(berth_vec_of(32), x * x);
    return berth_vec_gate_of(BERTH_DTYPE_BF16, x, x * berth_vec_polynomial(near, 3, square));
}

BERTH_INLINE berth_vec berth_vec_gelu_tanh_near(berth_vec x) {
    static const float near[] = {-0x1.26aec2p+1f, -0x1.a5a7d0p-4f};
    return berth_vec_gate_of(BERTH_DTYPE_BF16, x, x * berth_vec_polynomial(near, 2, x * x));
}

BERTH_INLINE berth_vec berth_vec_gelu_erf_as(berth_dtype dtype, berth_vec x) {
    return berth_has_curve(dtype) ? berth_vec_curve(berth_curve_gelu_erf, BERTH_CURVE_GELU, x)
           : berth_is_near(dtype) ? berth_vec_gelu_erf_near(x)
                                  : berth_vec_gelu_erf(x);
}

BERTH_INLINE berth_vec berth_vec_gelu_tanh_as(berth_dtype dtype, berth_vec x) {
    return berth_has_curve(dtype) ? berth_vec_curve(berth_curve_gelu_tanh, BERTH_CURVE_GELU, x)
           : berth_is_near(dtype) ? berth_vec_gelu_tanh_near(x)
                                  : berth_vec_gelu_tanh(x);
}

BERTH_INLINE berth_vec berth_vec_sigmoid_as(berth_dtype dtype, berth_vec x) {
    return berth_vec_gate_as(dtype, berth_vec_of(1), berth_vec_of(1), x);
}

BERTH_INLINE berth_vec berth_vec_silu_as(berth_dtype dtype, berth_vec x) {
    return berth_vec_gate_as(dtype, x, berth_vec_of(1), x);
}

#endif
