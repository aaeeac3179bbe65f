// SPDX-License-Identifier: Apache-2.0
// Functions of activations for results in bf16, which keep 8 bits: what a copy of so few bytes
// takes leaves no time for all of float32. Each is within 2^-12 of the result, relative, where
// nothing else is said. A NaN goes through.
#ifndef BERTH_KERNELS_CPU_NEAR_H
#define BERTH_KERNELS_CPU_NEAR_H

#include <cpu/gelu.h>

#define BERTH_BEND_TERMS 3

// gelu and its kind are max(x, 0) and a bend h(|x|), see gelu.h: here 15 pieces of degree 2 in |x|
// itself and a last one of zeros, through h at three Chebyshev points of each piece, of the first
// one t times the line through h(t) / t. Errors: 2^-12, of quick_gelu 2^-11.
typedef const float (*berth_bend_pieces)[BERTH_TABLE / 2];

// clang-format off
static const float berth_bend_gelu_erf[BERTH_BEND_TERMS][BERTH_TABLE / 2] = {
    {0, -0x1.851d12p-9f, -0x1.71fea4p-5f, -0x1.52ff08p-3f, -0x1.4b3a2ap-2f, -0x1.b081a8p-2f, -0x1.a0302ap-2f, -0x1.36c5fp-2f, -0x1.735ac2p-3f, -0x1.6a1d24p-4f, -0x1.24093p-5f, -0x1.89503p-7f, -0x1.bd6e26p-9f, -0x1.aa7606p-11f, -0x1.5a9bbap-13f, 0},
    {-0x1.fff1b2p-2f, -0x1.e67e46p-2f, -0x1.5087eap-2f, -0x1.24fe88p-4f, 0x1.5fa316p-3f, 0x1.2a6ea2p-2f, 0x1.1bf67p-2f, 0x1.8b6a9p-3f, 0x1.b1f47ep-4f, 0x1.83dc32p-5f, 0x1.1f6d6p-6f, 0x1.652572p-8f, 0x1.76d2bap-10f, 0x1.4e0222p-12f, 0x1.fb698p-15f, 0},
    {0x1.966e36p-2f, 0x1.60bd86p-2f, 0x1.bb039ep-3f, 0x1.41bfcep-4f, -0x1.f36f0ap-7f, -0x1.a5ebfcp-5f, -0x1.8c791p-5f, -0x1.fe8156p-6f, -0x1.ffc5acp-7f, -0x1.a1e408p-8f, -0x1.1bff1ep-9f, -0x1.452a86p-11f, -0x1.3bfda4p-13f, -0x1.05f0f4p-15f, -0x1.73c292p-18f, 0},
};

static const float berth_bend_gelu_tanh[BERTH_BEND_TERMS][BERTH_TABLE / 2] = {
    {0, -0x1.868486p-9f, -0x1.721a6cp-5f, -0x1.51d002p-3f, -0x1.49b99p-2f, -0x1.b09ab6p-2f, -0x1.a47c26p-2f, -0x1.3c90e6p-2f, -0x1.773fbap-3f, -0x1.5e0846p-4f, -0x1.fcd622p-6f, -0x1.1bf9b4p-7f, -0x1.de8d14p-10f, -0x1.2af0dap-12f, -0x1.0fc4e8p-15f, 0},
    {-0x1.fff1ap-2f, -0x1.e66608p-2f, -0x1.50654cp-2f, -0x1.297c98p-4f, 0x1.5a89e4p-3f, 0x1.29b8e2p-2f, 0x1.1f559p-2f, 0x1.94b6e6p-3f, 0x1.b9b272p-4f, 0x1.7a4b94p-5f, 0x1.f9d57p-7f, 0x1.04931cp-8f, 0x1.96f548p-11f, 0x1.d920e6p-14f, 0x1.91d46ap-17f, 0},
    {0x1.966b9ap-2f, 0x1.6085dep-2f, 0x1.ba7368p-3f, 0x1.433e98p-4f, -0x1.d59632p-7f, -0x1.a2b028p-5f, -0x1.912dep-5f, -0x1.062376p-5f, -0x1.05ff1ap-6f, -0x1.9abf34p-8f, -0x1.f8419ep-10f, -0x1.df0396p-12f, -0x1.5a6e3ep-14f, -0x1.76a30ap-17f, -0x1.292c92p-20f, 0},
};

static const float berth_bend_quick_gelu[BERTH_BEND_TERMS][BERTH_TABLE / 2] = {
    {0, -0x1.8eff5ep-7f, -0x1.fac49ap-4f, -0x1.199894p-2f, -0x1.5806c8p-2f, -0x1.37690ep-2f, -0x1.dc436ep-3f, -0x1.480aa4p-3f, -0x1.a51dccp-4f, -0x1.00d9a6p-4f, -0x1.2d5a3ep-5f, -0x1.56ce18p-6f, -0x1.7c3cb2p-7f, -0x1.9cf5b4p-8f, -0x1.b88b64p-9f, 0},
    {-0x1.ffcc1ep-2f, -0x1.b06f5ep-2f, -0x1.fac2d4p-4f, 0x1.ffd744p-4f, 0x1.952fd2p-3f, 0x1.5cba1p-3f, 0x1.e40918p-4f, 0x1.2cd4dp-4f, 0x1.5dd11p-5f, 0x1.84efeap-6f, 0x1.a2969cp-7f, 0x1.b76a56p-8f, 0x1.c43962p-9f, 0x1.c9ea68p-10f, 0x1.c96e8ap-11f, 0},
    {0x1.ae09p-2f, 0x1.2def92p-2f, 0x1.7de892p-4f, -0x1.2eae38p-7f, -0x1.fc2efcp-6f, -0x1.9a6decp-6f, -0x1.fdddd4p-7f, -0x1.1b50dcp-7f, -0x1.28998p-8f, -0x1.2b4adp-9f, -0x1.2691c8p-10f, -0x1.1cb626p-11f, -0x1.0f653p-12f, -0x1.ffbf5ep-14f, -0x1.de2d74p-15f, 0},
};
static const float berth_bend_tanh[BERTH_BEND_TERMS][BERTH_TABLE / 2] = {
    {0, -0x1.dac5e4p-9f, -0x1.56ea7ap-6f, -0x1.9bd776p-6f, 0x1.564074p-6f, 0x1.fd0dap-4f, 0x1.0e32ap-2f, 0x1.a5d73ap-2f, 0x1.18cff4p-1f, 0x1.53c06p-1f, 0x1.82983p-1f, 0x1.a65362p-1f, 0x1.c0c98ep-1f, 0x1.d3f4f4p-1f, 0x1.e19c0ep-1f, 0x1p+0f},
    {0x1.002a7p+0f, 0x1.0d22e2p+0f, 0x1.2597d8p+0f, 0x1.29e7ecp+0f, 0x1.0f6b1p+0f, 0x1.c0e1e4p-1f, 0x1.58bbf4p-1f, 0x1.f64686p-2f, 0x1.60afeap-2f, 0x1.e2c508p-3f, 0x1.447f1p-3f, 0x1.ae9236p-4f, 0x1.1ae852p-4f, 0x1.7105a8p-5f, 0x1.de88d6p-6f, 0},
    {-0x1.53bd9ep-5f, -0x1.d42c28p-3f, -0x1.722f2ep-2f, -0x1.82d16ep-2f, -0x1.4730f4p-2f, -0x1.e77556p-3f, -0x1.4f94b8p-3f, -0x1.b7f912p-4f, -0x1.17d5b2p-4f, -0x1.5d6c9cp-5f, -0x1.af66ep-6f, -0x1.08790ap-6f, -0x1.42e9a4p-7f, -0x1.8942a8p-8f, -0x1.de311p-9f, 0},
};
// clang-format on

BERTH_INLINE berth_vec berth_vec_piece(berth_bend_pieces pieces, berth_vec index, berth_vec t) {
    const berth_vec_bits at = (berth_vec_bits)index;
    berth_vec sum = berth_vec_table_half(pieces[2], at);
    sum = berth_vec_fma(sum, t, berth_vec_table_half(pieces[1], at));
    return berth_vec_fma(sum, t, berth_vec_table_half(pieces[0], at));
}

// Of pieces of width 1 / `density`. Why the first bound: an infinite x is infinite, while one times
// 0 must be 0; of -infinity it is NaN, as the product of 0 and infinity that gelu is.
BERTH_INLINE berth_vec berth_vec_bend(berth_bend_pieces pieces, float density, berth_vec x) {
    const berth_vec magic = berth_vec_of(0x1.8p+23f); // the sum's lowest bits are a whole number
    const berth_vec last = berth_vec_of(0x1.8p+23f + (BERTH_TABLE / 2 - 1));
    const berth_vec finite = berth_vec_min(berth_vec_of(0x1p+60f), x);
    const berth_vec t = (berth_vec)((berth_vec_bits)finite & 0x7fffffffu);
    const berth_vec index = berth_vec_min(last, berth_vec_fma(t, berth_vec_of(density), magic));
    return berth_vec_max(berth_vec_of(0), x) + berth_vec_piece(pieces, index, t);
}

// tanh, by pieces of width 1/4; from 3.625 on 1, within 2^-9.
BERTH_INLINE berth_vec berth_vec_tanh_near(berth_vec x) {
    const berth_vec_bits sign = (berth_vec_bits)x & 0x80000000u;
    const berth_vec size = (berth_vec)((berth_vec_bits)x & 0x7fffffffu);
    const berth_vec t = berth_vec_min(berth_vec_of(3.75f), size);
    const berth_vec index = berth_vec_fma(t, berth_vec_of(4), berth_vec_of(0x1.8p+23f));
    return (berth_vec)((berth_vec_bits)berth_vec_piece(berth_bend_tanh, index, t) | sign);
}

// 2^x; subnormal results, infinities and NaN as exp2f gives them.
BERTH_INLINE berth_vec berth_vec_exp2_near(berth_vec x) {
    static const float near[] = {0x1.fff2eep-1f, 0x1.6484aep-1f, 0x1.cc2becp-3f, 0x1.43732cp-4f};
    const berth_vec part = berth_vec_part(x);
    return berth_vec_raise(berth_vec_polynomial(near, 4, part), x, part);
}

// ---- of the dtype of a result -------------------------------------------------------------------

// Where the reference rounds on the way: in bf16 there is no time for that, and none is asked for.
BERTH_INLINE berth_vec berth_vec_round_as(berth_dtype dtype, berth_vec a) {
    return dtype == BERTH_DTYPE_F16 ? berth_vec_round_to(dtype, a) : a;
}

BERTH_INLINE berth_vec berth_vec_gelu_erf_as(berth_dtype dtype, berth_vec x) {
    return BERTH_HAS_TABLE && dtype == BERTH_DTYPE_BF16
               ? berth_vec_bend(berth_bend_gelu_erf, 8.0f / 3, x)
               : berth_vec_gelu_erf(x);
}

BERTH_INLINE berth_vec berth_vec_gelu_tanh_as(berth_dtype dtype, berth_vec x) {
    return BERTH_HAS_TABLE && dtype == BERTH_DTYPE_BF16
               ? berth_vec_bend(berth_bend_gelu_tanh, 8.0f / 3, x)
               : berth_vec_gelu_tanh(x);
}

// 1 / (1 + e^−by·x), as a quotient with `over` above. Why a division: it leaves the multipliers
// to what surrounds it, which an estimate and a step of Newton's method do not.
BERTH_INLINE berth_vec berth_vec_gate_as(berth_dtype dtype, berth_vec over, berth_vec by,
                                         berth_vec x) {
    const berth_vec power = berth_vec_of(-0x1.715476p+0f) * by * x;
    if (dtype == BERTH_DTYPE_BF16) {
        return over * berth_vec_estimate(berth_vec_of(1) + berth_vec_exp2_near(power));
    }
    return over / (berth_vec_of(1) + berth_vec_exp2(power));
}

BERTH_INLINE berth_vec berth_vec_sigmoid_as(berth_dtype dtype, berth_vec x) {
    return berth_vec_gate_as(dtype, berth_vec_of(1), berth_vec_of(1), x);
}

BERTH_INLINE berth_vec berth_vec_silu_as(berth_dtype dtype, berth_vec x) {
    return berth_vec_gate_as(dtype, x, berth_vec_of(1), x);
}

#endif
