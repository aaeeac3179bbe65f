// SPDX-License-Identifier: Apache-2.0
// gelu on the CPU: max(x, 0) and a correction h(|x|) that is the same on both sides, h(t) =
// gelu(-t) = -t * Q(t) with Q the upper tail of the function that gelu multiplies by. h is smooth,
// begins and ends at 0 and lies above -0.17, so that short polynomials serve: 31 pieces of width
// 3/16 about the multiples of 3/16, each of degree 4, and a last one of zeros from 5.71875 on,
// where h is above -2^-24.
//
// The coefficients are those of the polynomials through h at the five zeros of the fifth Chebyshev
// polynomial on the piece, in |x| less the piece's middle; the first piece is t times the one of
// degree 3 through h(t) / t, so that small x keep their relative precision. Errors: 2^-25.9 of the
// polynomials, and the roundings of float32, together less than 2^-23 or 4 units in the last place
// (tests/ops/gelu_test.c).
#ifndef BERTH_KERNELS_CPU_GELU_H
#define BERTH_KERNELS_CPU_GELU_H

#include <cpu/functions.h>

#define BERTH_GELU_TERMS 5

typedef const float (*berth_gelu_pieces)[BERTH_TABLE];

static const float berth_gelu_erf_pieces[BERTH_GELU_TERMS][BERTH_TABLE] = {
    {0,
     -0x1.46e31cp-4f,
     -0x1.0fbddap-3f,
     -0x1.4a7eap-3f,
     -0x1.5c198p-3f,
     -0x1.4e8fb6p-3f,
     -0x1.2c32d6p-3f,
     -0x1.fcfa1p-4f,
     -0x1.9a76a4p-4f,
     -0x1.3c3fc2p-4f,
     -0x1.d2e35cp-5f,
     -0x1.4ad334p-5f,
     -0x1.c2a49ap-6f,
     -0x1.274fap-6f,
     -0x1.74a8eep-7f,
     -0x1.c50a54p-8f,
     -0x1.096698p-8f,
     -0x1.2bc88ep-9f,
     -0x1.468978p-10f,
     -0x1.570de8p-11f,
     -0x1.5babcp-12f,
     -0x1.53f11cp-13f,
     -0x1.40b6a4p-14f,
     -0x1.23f934p-15f,
     -0x1.008406p-16f,
     -0x1.b2fedap-18f,
     -0x1.63f91cp-19f,
     -0x1.1929e6p-20f,
     -0x1.acb3dep-22f,
     -0x1.3b78ep-23f,
     -0x1.c02c1ap-25f,
     0                                                      },
    {-0x1p-1f,         -0x1.68966ap-2f, -0x1.b70f8p-3f,  -0x1.866d36p-4f,
     -0x1.963bbcp-11f, 0x1.116e5cp-4f,  0x1.baa3ep-4f,   0x1.03484ap-3f,
     0x1.050e9ap-3f,  0x1.dc922ap-4f,  0x1.93c6a6p-4f,  0x1.41894p-4f,
     0x1.e4e24p-5f,   0x1.5bd2c8p-5f,  0x1.dc428ap-6f,   0x1.37e6c8p-6f,
     0x1.876f5ap-7f,  0x1.d748f6p-8f,  0x1.1071dcp-8f,  0x1.2eb712p-9f,
     0x1.436efp-10f,   0x1.4c76fp-11f,   0x1.48ec0ep-12f,  0x1.394f8ep-13f,
     0x1.1f6b6ep-14f,  0x1.fbfc8ep-16f,  0x1.b086e4p-17f,  0x1.62e6b8p-18f,
     0x1.18acbep-19f,  0x1.abf28p-21f,   0x1.3a876ap-22f,  0},
    {0x1.98846cp-2f,   0x1.8a57b6p-2f,  0x1.620184p-2f,  0x1.2591b8p-2f,
     0x1.bb464p-3f,    0x1.271f02p-3f,  0x1.3ea9c4p-4f,  0x1.7f0bd8p-6f,
     -0x1.094006p-6f, -0x1.4d8666p-5f, -0x1.ab066ap-5f, -0x1.b70488p-5f,
     -0x1.8e247ep-5f, -0x1.4a3038p-5f, -0x1.fdc846p-6f,  -0x1.72066p-6f,
     -0x1.fc47ccp-7f, -0x1.4bb9bep-7f, -0x1.9cadbp-8f,  -0x1.ea5dcep-9f,
     -0x1.16bc7cp-9f,  -0x1.2f8fe6p-10f, -0x1.3d06b6p-11f, -0x1.3dc18ap-12f,
     -0x1.31deb6p-13f, -0x1.1aec4cp-14f, -0x1.f72e3p-16f,  -0x1.ae589cp-17f,
     -0x1.621aap-18f,  -0x1.1868c8p-19f, -0x1.ab8276p-21f, 0},
    {-0x1.35ba96p-16f, -0x1.8ce6bp-5f,  -0x1.6e8856p-4f, -0x1.e0af14p-4f,
     -0x1.087ce4p-3f,  -0x1.00576cp-3f, -0x1.bc6ef4p-4f, -0x1.57d8bap-4f,
     -0x1.d06f8ep-5f, -0x1.ff5a1cp-6f, -0x1.58644p-7f,  0x1.09b814p-8f,
     0x1.9bcf8ap-7f,  0x1.07634ep-6f,  0x1.0720b2p-6f,   0x1.ca992ap-7f,
     0x1.6b0e4ep-7f,  0x1.0a4bf6p-7f,  0x1.6dfe68p-8f,  0x1.da8f48p-9f,
     0x1.239edp-9f,    0x1.54d75cp-10f,  0x1.7bc5ccp-11f,  0x1.9425b6p-12f,
     0x1.9b5e66p-13f,  0x1.90f63p-14f,   0x1.7698f2p-15f,  0x1.4fb432p-16f,
     0x1.20c6c2p-17f,  0x1.dd257p-19f,   0x1.7ac45p-20f,   0},
    {-0x1.0f5bcap-4f,  -0x1.f5a46p-5f,  -0x1.80c162p-5f, -0x1.b6058ap-6f,
     -0x1.39522p-8f,   0x1.e260cap-7f,  0x1.d5f6dep-6f,  0x1.2464a6p-5f,
     0x1.2734d2p-5f,  0x1.004f04p-5f,  0x1.8345aap-6f,  0x1.f3110ap-7f,
     0x1.f8b46ap-8f,  0x1.0299f4p-9f,  -0x1.be2446p-10f, -0x1.d19b72p-9f,
     -0x1.09aeep-8f,  -0x1.e8c54ep-9f, -0x1.8b812ep-9f, -0x1.238094p-9f,
     -0x1.8e588ep-10f, -0x1.fdd966p-11f, -0x1.339efp-11f,  -0x1.5f8f7cp-12f,
     -0x1.7dbeaep-13f, -0x1.8acf72p-14f, -0x1.85a2aap-15f, -0x1.6f790ep-16f,
     -0x1.4b983ap-17f, -0x1.1e91f6p-18f, -0x1.dac45cp-20f, 0},
};

static const float berth_gelu_tanh_pieces[BERTH_GELU_TERMS][BERTH_TABLE] = {
    {0,
     -0x1.46e386p-4f,
     -0x1.0fc0f2p-3f,
     -0x1.4a8c66p-3f,
     -0x1.5c3da4p-3f,
     -0x1.4ed43p-3f,
     -0x1.2c987cp-3f,
     -0x1.fdeccep-4f,
     -0x1.9b5ad6p-4f,
     -0x1.3cd2b8p-4f,
     -0x1.d2f3bp-5f,
     -0x1.49942p-5f,
     -0x1.bdaaa6p-6f,
     -0x1.208208p-6f,
     -0x1.654ca4p-7f,
     -0x1.a6aa2ap-8f,
     -0x1.dcc2ap-9f,
     -0x1.ffc81cp-10f,
     -0x1.04d73cp-10f,
     -0x1.f7cb72p-12f,
     -0x1.cbce1p-13f,
     -0x1.8b9e18p-14f,
     -0x1.4011d8p-15f,
     -0x1.e5b5dep-17f,
     -0x1.58b87ap-18f,
     -0x1.c87976p-20f,
     -0x1.193082p-21f,
     -0x1.41710ap-23f,
     -0x1.54078ap-25f,
     -0x1.4bf08p-27f,
     -0x1.2a390cp-29f,
     0                                                     },
    {-0x1p-1f,         -0x1.68989cp-2f, -0x1.b72ed2p-3f, -0x1.871a3ep-4f,
     -0x1.16795cp-10f, 0x1.0ffa92p-4f, 0x1.b96e92p-4f,  0x1.031d3cp-3f,
     0x1.058d46p-3f,  0x1.deeef8p-4f,  0x1.9717d4p-4f,  0x1.451224p-4f,
     0x1.ead23cp-5f,  0x1.5f7efap-5f,  0x1.de439cp-6f,   0x1.352ccep-6f,
     0x1.7b9714p-7f,  0x1.ba01e8p-8f,  0x1.e753dcp-9f,  0x1.fbba12p-10f,
     0x1.f2c6e6p-11f,  0x1.ccee72p-12f,  0x1.8fba1ep-13f,  0x1.447d86p-14f,
     0x1.ebe58ap-16f,  0x1.5b36cp-17f,   0x1.c74c8ep-19f,  0x1.148bf8p-20f,
     0x1.366626p-22f,  0x1.410afp-24f,  0x1.312984p-26f,  0},
    {0x1.98846ep-2f,   0x1.8a469ap-2f,  0x1.61c954p-2f,  0x1.253b24p-2f,
     0x1.baaedap-3f,   0x1.270c82p-3f, 0x1.4029a2p-4f,  0x1.8b5462p-6f,
     -0x1.f401acp-7f, -0x1.46efdcp-5f, -0x1.a7b9d2p-5f, -0x1.b80938p-5f,
     -0x1.92f50cp-5f, -0x1.511d66p-5f, -0x1.05e184p-5f,  -0x1.7cdb9ep-6f,
     -0x1.043db2p-6f, -0x1.4eb282p-7f, -0x1.951fbep-8f, -0x1.cd1f7p-9f,
     -0x1.ecdb7ep-10f, -0x1.edc4d6p-11f, -0x1.cebe6ap-12f, -0x1.94c7bcp-13f,
     -0x1.49bb26p-14f, -0x1.f3112ep-16f, -0x1.5e064ep-17f, -0x1.c5e6cp-19f,
     -0x1.0f64p-20f,   -0x1.2a818p-22f, -0x1.2d3936p-24f, 0},
    {-0x1.3ccc32p-16f, -0x1.8ea95cp-5f, -0x1.6fa59cp-4f, -0x1.e111bp-4f,
     -0x1.07f35p-3f,   -0x1.fe291p-4f, -0x1.b95c26p-4f, -0x1.559cdcp-4f,
     -0x1.cff36cp-5f, -0x1.03be82p-5f, -0x1.7516a6p-7f, 0x1.99b05ep-9f,
     0x1.85f168p-7f,  0x1.038eep-6f,   0x1.0a3208p-6f,   0x1.d9992p-7f,
     0x1.7c790ep-7f,  0x1.18e5a8p-7f,  0x1.804aa4p-8f,  0x1.e8edccp-9f,
     0x1.21a212p-9f,   0x1.3f8864p-10f,  0x1.47fc1ep-11f,  0x1.38cfbp-12f,
     0x1.14bedcp-13f,  0x1.c561a4p-15f,  0x1.5727aap-16f,  0x1.def316p-18f,
     0x1.337dfcp-19f,  0x1.6a65a4p-21f, 0x1.8719dep-23f,  0},
    {-0x1.10af1cp-4f,  -0x1.f76074p-5f, -0x1.802058p-5f, -0x1.afb29ep-6f,
     -0x1.16f042p-8f,  0x1.ee7df8p-7f, 0x1.d5568cp-6f,  0x1.205544p-5f,
     0x1.2107dcp-5f,  0x1.f59416p-6f,  0x1.7e47aep-6f,  0x1.f84e5p-7f,
     0x1.0ceb9cp-7f,  0x1.528fc2p-9f,  -0x1.3f9048p-10f, -0x1.b39278p-9f,
     -0x1.0b3cb2p-8f, -0x1.00b398p-8f, -0x1.aad53cp-9f, -0x1.3e1f8ap-9f,
     -0x1.afa64ep-10f, -0x1.0c7bcep-10f, -0x1.33374cp-11f, -0x1.43c124p-12f,
     -0x1.3a3ca2p-13f, -0x1.18b8e2p-14f, -0x1.cd1d3ep-16f, -0x1.5ba90ep-17f,
     -0x1.e07052p-19f, -0x1.2fa81p-20f, -0x1.5e68ccp-22f, 0},
};

// Why the first bound: an infinite x is infinite, while a step beyond the last piece times 0 must
// be 0; of -infinity it is NaN, as the product of 0 and infinity that gelu is.
BERTH_INLINE berth_vec berth_vec_gelu_of(berth_gelu_pieces pieces, berth_vec x) {
    const berth_vec width = berth_vec_of(0.1875f);
    const berth_vec magic = berth_vec_of(0x1.8p+23f); // the sum's lowest bits are a whole number
    const berth_vec last = berth_vec_of(0x1.8p+23f + (BERTH_TABLE - 1));
    const berth_vec finite = berth_vec_min(berth_vec_of(0x1p+100f), x);
    const berth_vec t = (berth_vec)((berth_vec_bits)finite & 0x7fffffffu);
    const berth_vec piece = berth_vec_min(last, berth_vec_fma(t, berth_vec_of(16.0f / 3), magic));
    const berth_vec step = berth_vec_fma(magic - piece, width, t);
    berth_vec sum = berth_vec_table(pieces[BERTH_GELU_TERMS - 1], (berth_vec_bits)piece);
    BERTH_UNROLL
    for (int i = BERTH_GELU_TERMS - 2; i >= 0; --i) {
        sum = berth_vec_fma(sum, step, berth_vec_table(pieces[i], (berth_vec_bits)piece));
    }
    return berth_vec_max(berth_vec_of(0), x) + sum;
}

BERTH_INLINE berth_vec berth_vec_gelu_erf(berth_vec x) {
    if (BERTH_HAS_TABLE) {
        return berth_vec_gelu_of(berth_gelu_erf_pieces, x);
    }
    return berth_vec_of(0.5f) * x * berth_vec_erf_base(x);
}

// Without tables: (1 + tanh(u)) / 2 is sigmoid(2u).
BERTH_INLINE berth_vec berth_vec_gelu_tanh(berth_vec x) {
    const double slope = 2 * 0.79788456080286535588; // sqrt(8/pi)
    const berth_vec cube = berth_vec_of((float)(slope * 0.044715));
    if (BERTH_HAS_TABLE) {
        return berth_vec_gelu_of(berth_gelu_tanh_pieces, x);
    }
    return x * berth_vec_sigmoid(x * berth_vec_fma(x * x, cube, berth_vec_of((float)slope)));
}

#endif
