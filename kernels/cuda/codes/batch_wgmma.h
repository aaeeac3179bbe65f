// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps for kernels of some rows: 64 outputs by N rows of x, sums in
// f32. Rows of x lie in shared memory as panels of 128 bytes (wgmma.h), and so do codes of e4m3;
// numbers that codes of 4 bits stand for are in registers, as a first operand lies in mma.h.
// Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_CODES_BATCH_WGMMA_H
#define BERTH_KERNELS_CUDA_CODES_BATCH_WGMMA_H

#include <cuda/wgmma.h>

// d = a · b, plus d where `adds`. The operands' names are those that follow the sums'.
#define CUDA_BATCH_REGISTERS(n, type, count, a_names, b_name, adds_name)                           \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name ", 0;\n"                      \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type                    \
                 " {" CUDA_NAMES_##count "}, {" a_names "}, " b_name ", adds, 1, 1, 0;\n}"         \
                 : CUDA_SUMS_##count                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds))
#define CUDA_BATCH_32(type) CUDA_BATCH_REGISTERS("32", type, 16, "%16, %17, %18, %19", "%20", "%21")
#define CUDA_BATCH_64(type) CUDA_BATCH_REGISTERS("64", type, 32, "%32, %33, %34, %35", "%36", "%37")
#define CUDA_BATCH_96(type) CUDA_BATCH_REGISTERS("96", type, 48, "%48, %49, %50, %51", "%52", "%53")
#define CUDA_BATCH_128(type)                                                                       \
    CUDA_BATCH_REGISTERS("128", type, 64, "%64, %65, %66, %67", "%68", "%69")

// d [8] of codes of e4m3 and 16 rows, 32 deep, both operands in shared memory.
template <bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_batch_codes(float *d, uint64_t a, uint64_t b, int adds) {
    if constexpr (HAS) {
        CUDA_GROUP_SHARED("n16k32.f32.e4m3.e4m3", "", 8, "%8", "%9", "%10");
    }
}

// d [N / 2] of numbers of 16 bits, 16 deep, the first operand in registers.
template <typename T, int N, bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_batch_numbers(float *d, const uint32_t *a, uint64_t b,
                                                 int adds) {
    static_assert(N == 32 || N == 64 || N == 96 || N == 128);
    if constexpr (HAS && N == 32 && gpu_is_bf16<T>) {
        CUDA_BATCH_32("bf16");
    } else if constexpr (HAS && N == 32) {
        CUDA_BATCH_32("f16");
    } else if constexpr (HAS && N == 64 && gpu_is_bf16<T>) {
        CUDA_BATCH_64("bf16");
    } else if constexpr (HAS && N == 64) {
        CUDA_BATCH_64("f16");
    } else if constexpr (HAS && N == 96 && gpu_is_bf16<T>) {
        CUDA_BATCH_96("bf16");
    } else if constexpr (HAS && N == 96) {
        CUDA_BATCH_96("f16");
    } else if constexpr (HAS && gpu_is_bf16<T>) {
        CUDA_BATCH_128("bf16");
    } else if constexpr (HAS) {
        CUDA_BATCH_128("f16");
    }
}

#endif
