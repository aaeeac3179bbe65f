// SPDX-License-Identifier: Apache-2.0
// gelu on the CPU: max(x, 0) and a correction h(|x|) that is the same on both sides, h(t) =
// gelu(-t) = -t * Q(t) with Q the upper tail of the function that gelu multiplies by. h is smooth,
// begins and ends at 0 and lies above -0.17, so that short polynomials serve: 31 pieces of width
// 3/16 about the multiples of 3/16, each of degree 4, and a last one of zeros from 5.71875 on,
// where h is above -2^-24.
//
// The coefficients are those of the polynomials through h at the five zeros of the fifth Chebyshev
// polynomial on the piece, in |x| less the piece's middle, over 3/16; the first piece is t times
// the one of degree 3 through h(t) / t, so that small x keep their relative precision. Errors:
// 2^-25.9 of the polynomials, and the roundings of float32, together less than 2^-23 or 4 units in
// the last place (tests/ops/gelu_test.c).
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
    {-0x1.8p-4f,       -0x1.0e70dp-4f,   -0x1.494bap-5f,   -0x1.24d1e8p-6f,
     -0x1.30acccp-13f, 0x1.9a258ap-7f,   0x1.4bfae8p-6f,   0x1.84ec7p-6f,
     0x1.8795e8p-6f,   0x1.656dap-6f,    0x1.2ed4fcp-6f,   0x1.e24dep-7f,
     0x1.6ba9bp-7f,    0x1.04de16p-7f,  0x1.6531e8p-8f,   0x1.d3da2cp-9f,
     0x1.259384p-9f,   0x1.6176b8p-10f,  0x1.98aacap-11f,  0x1.c6129cp-12f,
     0x1.e52668p-13f,  0x1.f2b268p-14f,  0x1.ed6214p-15f,  0x1.d5f754p-16f,
     0x1.af2124p-17f,  0x1.7cfd6ap-18f,  0x1.44652cp-19f,  0x1.0a2d0ap-20f,
     0x1.a5031cp-22f,  0x1.40f5ep-23f,   0x1.d7cb2p-25f,   0},
    {0x1.cb94fap-7f,   0x1.bba2acp-7f,   0x1.8e41b4p-7f,   0x1.4a43fp-7f,
     0x1.f2af08p-8f,   0x1.4c02e2p-8f,   0x1.667efcp-9f,   0x1.aeed54p-11f,
     -0x1.2a6806p-11f, -0x1.773732p-10f, -0x1.e06738p-10f, -0x1.ede518p-10f,
     -0x1.bfe90ep-10f, -0x1.73764p-10f, -0x1.1ec0a8p-10f, -0x1.a0472cp-11f,
     -0x1.1de862p-11f, -0x1.7530f6p-12f, -0x1.d04366p-13f, -0x1.13d4c4p-13f,
     -0x1.39940cp-14f, -0x1.5581e2p-15f, -0x1.64a78cp-16f, -0x1.6579bcp-17f,
     -0x1.581a8cp-18f, -0x1.3e49d6p-19f, -0x1.1b09fcp-20f, -0x1.e423bp-22f,
     -0x1.8e5df4p-23f, -0x1.3b75ep-24f,  -0x1.e0f2c4p-26f, 0},
    {-0x1.05556ep-23f, -0x1.4ee2a4p-12f, -0x1.354308p-11f, -0x1.9593b8p-11f,
     -0x1.be52cp-11f,  -0x1.b09386p-11f, -0x1.76fd9ep-11f, -0x1.221edcp-11f,
     -0x1.87de2p-12f,  -0x1.af7408p-13f, -0x1.229496p-14f, 0x1.c066a2p-16f,
     0x1.5b771cp-14f,  0x1.bc7794p-14f, 0x1.bc072cp-14f,  0x1.82f13cp-14f,
     0x1.325412p-14f,  0x1.c1603p-15f,   0x1.34cea8p-15f,  0x1.9068e4p-16f,
     0x1.ec1cp-17f,    0x1.1f95b6p-17f,  0x1.406ee4p-18f,  0x1.54ffd2p-19f,
     0x1.5b17a6p-20f,  0x1.524fb8p-21f,  0x1.3c110cp-22f,  0x1.1b400ap-23f,
     0x1.e74f68p-25f,  0x1.929796p-26f,  0x1.3f95a4p-27f,  0},
    {-0x1.57702cp-14f, -0x1.3d7204p-14f, -0x1.e6f4cp-15f,  -0x1.152f82p-15f,
     -0x1.8c8bfp-18f,  0x1.31414p-16f,   0x1.296638p-15f,  0x1.720f62p-15f,
     0x1.759edap-15f,  0x1.446402p-15f,  0x1.ea242cp-16f,  0x1.3bd0c8p-16f,
     0x1.3f622cp-17f,  0x1.474ad8p-19f, -0x1.1a52f4p-19f, -0x1.26a45ep-18f,
     -0x1.504154p-18f, -0x1.354cdcp-18f, -0x1.f48f7ep-19f, -0x1.70eebcp-19f,
     -0x1.f82814p-20f, -0x1.42a392p-20f, -0x1.855528p-21f, -0x1.bcf198p-22f,
     -0x1.e32554p-23f, -0x1.f3ae8cp-24f, -0x1.ed21ep-25f,  -0x1.d11536p-26f,
     -0x1.a3acaap-27f, -0x1.6ab0bcp-28f, -0x1.2c7042p-29f, 0},
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
     0                                                      },
    {-0x1.8p-4f,       -0x1.0e7274p-4f,  -0x1.49631ep-5f,  -0x1.2553aep-6f,
     -0x1.a1b60ap-13f, 0x1.97f7dcp-7f,   0x1.4b12eep-6f,  0x1.84abdap-6f,
     0x1.8853e8p-6f,   0x1.67333ap-6f,   0x1.3151ep-6f,    0x1.e79b36p-7f,
     0x1.701dacp-7f,   0x1.079f3cp-7f,   0x1.66b2b4p-8f,   0x1.cfc334p-9f,
     0x1.1cb15p-9f,    0x1.4b816ep-10f,  0x1.6d7ee4p-11f,  0x1.7ccb8ep-12f,
     0x1.76152cp-13f,  0x1.59b2d6p-14f,  0x1.2bcb96p-15f,  0x1.e6bc48p-17f,
     0x1.70ec28p-18f,  0x1.04691p-19f,   0x1.55796ap-21f,  0x1.9ed1f4p-23f,
     0x1.d19938p-25f,  0x1.e19068p-27f,  0x1.c9be46p-29f,  0},
    {0x1.cb94fcp-7f,   0x1.bb8f6ep-7f,   0x1.8e027ep-7f,   0x1.49e288p-7f,
     0x1.f204b6p-8f,   0x1.4bee12p-8f,   0x1.682ed6p-9f,  0x1.bcbeeep-11f,
     -0x1.1940fp-11f,  -0x1.6fcdd8p-10f, -0x1.dcb10cp-10f, -0x1.ef0a6p-10f,
     -0x1.c553aep-10f, -0x1.7b4112p-10f, -0x1.269db4p-10f, -0x1.ac7712p-11f,
     -0x1.24c568p-11f, -0x1.7888d2p-12f, -0x1.c7c3b6p-13f, -0x1.0361bp-13f,
     -0x1.153b76p-14f, -0x1.15beb8p-15f, -0x1.044b1cp-16f, -0x1.c760b4p-18f,
     -0x1.72f28ap-19f, -0x1.18b9aap-20f, -0x1.89c718p-22f, -0x1.fea398p-24f,
     -0x1.31508p-25f,  -0x1.4fd1bp-27f,  -0x1.52e05cp-29f, 0},
    {-0x1.0b4c4ap-23f, -0x1.505ee6p-12f, -0x1.3633bcp-11f, -0x1.95e6ecp-11f,
     -0x1.bd6a98p-11f, -0x1.ae72a6p-11f, -0x1.7465cp-11f, -0x1.203c5ap-11f,
     -0x1.877564p-12f, -0x1.b6517cp-13f, -0x1.3acb1cp-14f, 0x1.59acdp-16f,
     0x1.4903bp-14f,   0x1.b6011ap-14f,  0x1.c1346ep-14f,  0x1.8f9934p-14f,
     0x1.410624p-14f,  0x1.da038cp-15f,  0x1.443efap-15f,  0x1.9c88a4p-16f,
     0x1.e8c17ep-17f,  0x1.0d9b14p-17f,  0x1.14bcbap-18f,  0x1.07ef3cp-19f,
     0x1.d30214p-21f,  0x1.7e8a62p-22f,  0x1.218978p-23f,  0x1.941d1ap-25f,
     0x1.03724cp-26f,  0x1.31c5c2p-28f,  0x1.49fdd4p-30f,  0},
    {-0x1.591dap-14f,  -0x1.3e8b0ap-14f, -0x1.e628fp-15f,  -0x1.112f08p-15f,
     -0x1.610814p-18f, 0x1.38ebb6p-16f,  0x1.2900c4p-15f, 0x1.6cebeap-15f,
     0x1.6dcdf2p-15f,  0x1.3d67b6p-15f,  0x1.e3d2b8p-16f,  0x1.3f218ep-16f,
     0x1.545a32p-17f,  0x1.ac7df2p-19f,  -0x1.94729cp-20f, -0x1.13a2bp-18f,
     -0x1.5238d2p-18f, -0x1.44e34cp-18f, -0x1.0e1afp-18f,  -0x1.929feap-19f,
     -0x1.11273ep-19f, -0x1.53ccbp-20f,  -0x1.84d1fcp-21f, -0x1.99c072p-22f,
     -0x1.8db4bep-23f, -0x1.6349fep-24f, -0x1.23cc82p-25f, -0x1.b801f6p-27f,
     -0x1.300714p-28f, -0x1.8050b4p-30f, -0x1.bb7ca2p-32f, 0},
};

// h(|x|). Beyond the last piece it is 0, of NaN it is that.
BERTH_INLINE berth_vec berth_vec_gelu_bend(berth_gelu_pieces pieces, berth_vec x) {
    const berth_vec magic = berth_vec_of(0x1.8p+23f); // the sum's lowest bits are a whole number
    const berth_vec end = berth_vec_of(BERTH_TABLE - 1);
    const berth_vec size = (berth_vec)((berth_vec_bits)x & 0x7fffffffu);
    const berth_vec t = berth_vec_min(end, size * berth_vec_of(16.0f / 3));
    const berth_vec piece = t + magic;
    const berth_vec step = t - (piece - magic);
    berth_vec sum = berth_vec_table(pieces[BERTH_GELU_TERMS - 1], (berth_vec_bits)piece);
    BERTH_UNROLL
    for (int i = BERTH_GELU_TERMS - 2; i >= 0; --i) {
        sum = berth_vec_fma(sum, step, berth_vec_table(pieces[i], (berth_vec_bits)piece));
    }
    return sum;
}

// max(x, 0) + h(|x|); of -infinity NaN, as the product of 0 and infinity that gelu is.
BERTH_INLINE berth_vec berth_vec_gelu_of(berth_gelu_pieces pieces, berth_vec x) {
    const berth_vec half = berth_vec_of(0.5f);
    const berth_vec size = (berth_vec)((berth_vec_bits)x & 0x7fffffffu);
    return berth_vec_fma(x, half, size * half) + berth_vec_gelu_bend(pieces, x);
}

// x · (1 + erf) / 2 in this order: the largest numbers overflow.
BERTH_INLINE berth_vec berth_vec_gelu_halved(berth_vec x) {
    if (!BERTH_HAS_TABLE) {
        return x * berth_vec_erf_base(x) * berth_vec_of(0.5f);
    }
    const berth_vec size = (berth_vec)((berth_vec_bits)x & 0x7fffffffu);
    const berth_vec bend = berth_vec_gelu_bend(berth_gelu_erf_pieces, x);
    return berth_vec_fma(x + size, berth_vec_of(0.5f), bend);
}

BERTH_INLINE berth_vec berth_vec_gelu_erf(berth_vec x) {
    if (BERTH_HAS_TABLE) {
        return berth_vec_gelu_of(berth_gelu_erf_pieces, x);
    }
    return berth_vec_of(0.5f) * x * berth_vec_erf_base(x);
}

// Without tables: (1 + tanh(u)) / 2 is 1 / (1 + 2^power), with power −2·log2(e)·u.
BERTH_INLINE berth_vec berth_vec_gelu_tanh(berth_vec x) {
    const double slope = -2 * 1.4426950408889634074 * 0.79788456080286535588; // sqrt(2/pi)
    const berth_vec cube = berth_vec_of((float)(slope * 0.044715));
    if (BERTH_HAS_TABLE) {
        return berth_vec_gelu_of(berth_gelu_tanh_pieces, x);
    }
    const berth_vec power = x * berth_vec_fma(x * x, cube, berth_vec_of((float)slope));
    return x / berth_vec_exp2_beside_one(power);
}

#endif
