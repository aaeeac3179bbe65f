// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps for gated.cu: 64 rows of x by 224 outputs, numbers of 16 bits,
// 16 of the depth. Both operands are in shared memory as panels of 128 bytes (wgmma.h), sums are of
// f32. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_GATED_WGMMA_H
#define BERTH_KERNELS_CUDA_PRODUCT_GATED_WGMMA_H

#include <cuda/wgmma.h>

#define CUDA_SUMS_112                                                                              \
    CUDA_SUMS_96, CUDA_SUMS_AT(96), CUDA_SUMS_AT(100), CUDA_SUMS_AT(104), CUDA_SUMS_AT(108)
#define CUDA_NAMES_112                                                                             \
    CUDA_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "   \
                  "%109, %110, %111"

// d [112] = a · b, plus d where `adds`.
template <typename T, bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_gated_multiply(float *d, uint64_t a, uint64_t b, int adds) {
    if constexpr (HAS && gpu_is_bf16<T>) {
        CUDA_GROUP_SHARED("n224k16.f32.bf16.bf16", CUDA_ROWS_ALONG, 112, "%112", "%113", "%114");
    } else if constexpr (HAS) {
        CUDA_GROUP_SHARED("n224k16.f32.f16.f16", CUDA_ROWS_ALONG, 112, "%112", "%113", "%114");
    }
}

#endif
