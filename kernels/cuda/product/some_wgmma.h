// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps for kernels of some rows: 64 rows of x by N outputs, 32 bytes
// of the depth, codes of e4m3 or numbers of 16 bits. Both operands are in shared memory as panels
// of 128 bytes (wgmma.h), sums are of f32. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_WGMMA_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_WGMMA_H

#include <cuda/wgmma.h>
#include <gpu/codes.h>

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
#define CUDA_SOME(n, type, turns, names, sums, a_name, b_name, adds_name)                          \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name ", 0;\n"                      \
                 "wgmma.mma_async.sync.aligned.m64n" n type " {" names "}, " a_name ", " b_name    \
                 ", adds, 1, 1" turns ";\n}"                                                       \
                 : sums                                                                            \
                 : "l"(a), "l"(b), "r"(adds))
#define CUDA_SOME_OF(type, turns)                                                                  \
    if constexpr (N == 32) {                                                                       \
        CUDA_SOME("32", type, turns, CUDA_SOME_NAMES_16, CUDA_SUMS_16(0), "%16", "%17", "%18");    \
    } else if constexpr (N == 48) {                                                                \
        CUDA_SOME("48", type, turns, CUDA_SOME_NAMES_24, CUDA_SOME_SUMS_24, "%24", "%25", "%26");  \
    } else if constexpr (N == 64) {                                                                \
        CUDA_SOME("64", type, turns, CUDA_SOME_NAMES_32, CUDA_SOME_SUMS_32, "%32", "%33", "%34");  \
    } else if constexpr (N == 96) {                                                                \
        CUDA_SOME("96", type, turns, CUDA_SOME_NAMES_48, CUDA_SOME_SUMS_48, "%48", "%49", "%50");  \
    } else {                                                                                       \
        CUDA_SOME("112", type, turns, CUDA_SOME_NAMES_56, CUDA_SOME_SUMS_56, "%56", "%57", "%58"); \
    }
#define CUDA_SOME_TURNS ", 0, 0" // of numbers: rows along the depth

// d [N / 2] = a · b, plus d where `adds`.
template <typename X, int N, bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_some_multiply(float *d, uint64_t a, uint64_t b, int adds) {
    static_assert(N == 32 || N == 48 || N == 64 || N == 96 || N == 112);
    if constexpr (HAS && sizeof(X) == 1) {
        CUDA_SOME_OF("k32.f32.e4m3.e4m3", "")
    } else if constexpr (HAS && gpu_is_bf16<X>) {
        CUDA_SOME_OF("k16.f32.bf16.bf16", CUDA_SOME_TURNS)
    } else if constexpr (HAS) {
        CUDA_SOME_OF("k16.f32.f16.f16", CUDA_SOME_TURNS)
    }
}

#endif
