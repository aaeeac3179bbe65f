// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps for kernels of many rows: 64 outputs by 192 rows of codes of
// e4m3, 32 deep, both operands in shared memory as panels of 128 bytes (wgmma.h), sums in f32.
// Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_WGMMA_H
#define BERTH_KERNELS_CUDA_CODES_MANY_WGMMA_H

#include <cuda/wgmma.h>

// d [96] = a · b, plus d where `adds`.
template <bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_many_codes(float *d, uint64_t a, uint64_t b, int adds) {
    if constexpr (HAS) {
        asm volatile(
            "{\n.reg .pred adds;\nsetp.ne.b32 adds, %98, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
            "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
            "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
            "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
            "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "
            "%87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, adds, 1, 1;\n}"
            : CUDA_SUMS_64, CUDA_SUMS_16(64), CUDA_SUMS_16(80)
            : "l"(a), "l"(b), "r"(adds));
    }
}

#endif
