// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps for kernels of many rows: 64 by 192 rows, 32 bytes
// deep, codes of e4m3 or numbers of 16 bits, both operands in shared memory as panels of 128 bytes
// (wgmma.h), sums in f32. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_WGMMA_H
#define BERTH_KERNELS_CUDA_CODES_MANY_WGMMA_H

#include <cuda/wgmma.h>

// d [96] = a · b, plus d where `adds`.
template <typename X, bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_many_multiply(float *d, uint64_t a, uint64_t b, int adds) {
    if constexpr (HAS && sizeof(X) == 1) {
        CUDA_GROUP_SHARED("n192k32.f32.e4m3.e4m3", "", 96, "%96", "%97", "%98");
    } else if constexpr (HAS && gpu_is_bf16<X>) {
        CUDA_GROUP_SHARED("n192k16.f32.bf16.bf16", CUDA_ROWS_ALONG, 96, "%96", "%97", "%98");
    } else if constexpr (HAS) {
        CUDA_GROUP_SHARED("n192k16.f32.f16.f16", CUDA_ROWS_ALONG, 96, "%96", "%97", "%98");
    }
}

#endif
