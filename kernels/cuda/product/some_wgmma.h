// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps for kernels of some rows and for gated.cu: 64 rows of x by N
// outputs, 32 bytes of the depth, codes of e4m3 or numbers of 16 bits. Both operands are in shared
// memory as panels of 128 bytes (wgmma.h), sums are of f32. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_WGMMA_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_WGMMA_H

#include <cuda/wgmma.h>
#include <gpu/codes.h>

#define CUDA_SOME_OF(kind, turns)                                                                  \
    if constexpr (N == 32) {                                                                       \
        CUDA_GROUP_SHARED("n32" kind, turns, 16, "%16", "%17", "%18");                             \
    } else if constexpr (N == 48) {                                                                \
        CUDA_GROUP_SHARED("n48" kind, turns, 24, "%24", "%25", "%26");                             \
    } else if constexpr (N == 64) {                                                                \
        CUDA_GROUP_SHARED("n64" kind, turns, 32, "%32", "%33", "%34");                             \
    } else if constexpr (N == 96) {                                                                \
        CUDA_GROUP_SHARED("n96" kind, turns, 48, "%48", "%49", "%50");                             \
    } else if constexpr (N == 112) {                                                               \
        CUDA_GROUP_SHARED("n112" kind, turns, 56, "%56", "%57", "%58");                            \
    } else {                                                                                       \
        CUDA_GROUP_SHARED("n224" kind, turns, 112, "%112", "%113", "%114");                        \
    }

// d [N / 2] = a · b, plus d where `adds`.
template <typename X, int N, bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_some_multiply(float *d, uint64_t a, uint64_t b, int adds) {
    static_assert(N == 32 || N == 48 || N == 64 || N == 96 || N == 112 || N == 224);
    if constexpr (HAS && sizeof(X) == 1) {
        CUDA_SOME_OF("k32.f32.e4m3.e4m3", "")
    } else if constexpr (HAS && gpu_is_bf16<X>) {
        CUDA_SOME_OF("k16.f32.bf16.bf16", CUDA_ROWS_ALONG)
    } else if constexpr (HAS) {
        CUDA_SOME_OF("k16.f32.f16.f16", CUDA_ROWS_ALONG)
    }
}

#endif
