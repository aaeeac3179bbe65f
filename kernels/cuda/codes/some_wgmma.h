// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps for kernels of some rows: 64 rows of x by N outputs, codes of
// e4m3, 32 deep, both operands in shared memory as panels of 128 bytes (wgmma.h), sums in f32.
// Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_CODES_SOME_WGMMA_H
#define BERTH_KERNELS_CUDA_CODES_SOME_WGMMA_H

#include <cuda/wgmma.h>

#define CUDA_SOME_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define CUDA_SOME_NAMES_24 CUDA_SOME_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define CUDA_SOME_NAMES_32 CUDA_SOME_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define CUDA_SOME_NAMES_48                                                                         \
    CUDA_SOME_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "  \
                       "%46, %47"
#define CUDA_SOME_NAMES_56 CUDA_SOME_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"

#define CUDA_SOME_SUMS_24 CUDA_SUMS_16(0), CUDA_SUMS_4(16), CUDA_SUMS_4(20)
#define CUDA_SOME_SUMS_32 CUDA_SUMS_16(0), CUDA_SUMS_16(16)
#define CUDA_SOME_SUMS_48 CUDA_SOME_SUMS_32, CUDA_SUMS_16(32)
#define CUDA_SOME_SUMS_56 CUDA_SOME_SUMS_48, CUDA_SUMS_4(48), CUDA_SUMS_4(52)

// The operands' names are those that follow the sums'.
#define CUDA_SOME(n, names, sums, a_name, b_name, adds_name)                                       \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name ", 0;\n"                      \
                 "wgmma.mma_async.sync.aligned.m64n" n "k32.f32.e4m3.e4m3 {" names "}, " a_name    \
                 ", " b_name ", adds, 1, 1;\n}"                                                    \
                 : sums                                                                            \
                 : "l"(a), "l"(b), "r"(adds))

// d [N / 2] = a · b, plus d where `adds`.
template <int N, bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_some_codes(float *d, uint64_t a, uint64_t b, int adds) {
    static_assert(N == 32 || N == 48 || N == 64 || N == 96 || N == 112);
    if constexpr (HAS && N == 32) {
        CUDA_SOME("32", CUDA_SOME_NAMES_16, CUDA_SUMS_16(0), "%16", "%17", "%18");
    } else if constexpr (HAS && N == 48) {
        CUDA_SOME("48", CUDA_SOME_NAMES_24, CUDA_SOME_SUMS_24, "%24", "%25", "%26");
    } else if constexpr (HAS && N == 64) {
        CUDA_SOME("64", CUDA_SOME_NAMES_32, CUDA_SOME_SUMS_32, "%32", "%33", "%34");
    } else if constexpr (HAS && N == 96) {
        CUDA_SOME("96", CUDA_SOME_NAMES_48, CUDA_SOME_SUMS_48, "%48", "%49", "%50");
    } else if constexpr (HAS) {
        CUDA_SOME("112", CUDA_SOME_NAMES_56, CUDA_SOME_SUMS_56, "%56", "%57", "%58");
    }
}

#endif
