// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps: 64 rows by 128 columns by a depth of 16, sums in f32, run
// behind the instructions that start them. Only in code for sm_90a; elsewhere these functions do
// nothing, and no kernel that uses them is launched.
//
// Operands in shared memory are panels of 64 elements: rows of 128 bytes, one behind another, whose
// 16-byte pieces are exchanged by the row's number (cuda_panel_place); panels begin at multiples of
// 1024 bytes. Sums and a first operand in registers lie as in mma.h, warp w having rows 16w and on.
#ifndef BERTH_KERNELS_CUDA_WGMMA_H
#define BERTH_KERNELS_CUDA_WGMMA_H

#include <gpu/element.h>

// The place of 16 bytes, of which a panel's row has 8.
static __device__ inline uint32_t cuda_panel_place(int row, int piece) {
    return static_cast<uint32_t>(row * 128 + (piece ^ (row & 7)) * 16);
}

// The description of an operand that begins at `address`: eight rows further on are 1024 bytes, the
// next panel is `leading` bytes away.
static __device__ inline uint64_t cuda_matrix(uint32_t address, uint32_t leading) {
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) |
           static_cast<uint64_t>(leading >> 4) << 16 | static_cast<uint64_t>(1024 >> 4) << 32 |
           UINT64_C(1) << 62;
}

// Before the first product after registers or shared memory have changed hands.
template <bool HAS = CUDA_HAS_WGMMA> static __device__ inline void cuda_group_begin() {
    if constexpr (HAS) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    }
}

// The products started since the last one are a batch.
template <bool HAS = CUDA_HAS_WGMMA> static __device__ inline void cuda_group_commit() {
    if constexpr (HAS) {
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
}

// Until all batches but the last LEFT are done.
template <int LEFT, bool HAS = CUDA_HAS_WGMMA> static __device__ inline void cuda_group_wait() {
    if constexpr (HAS) {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    }
}

// What comes before has been done with these values when what comes after it begins. Why: a wait
// for products says nothing of other registers, and the compiler would put off until behind it what
// is meant to run beside the products.
template <int COUNT> static __device__ inline void cuda_settle(float *values) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        asm volatile("" : "+f"(values[i])::"memory");
    }
}

// What threads have written to shared memory becomes visible to products.
template <bool HAS = CUDA_HAS_WGMMA> static __device__ inline void cuda_publish_shared() {
    if constexpr (HAS) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
}

// The registers of each thread of a group, which all of its warps give back or ask for; all groups
// together start with what the kernel's bounds leave them.
template <int REGISTERS, bool HAS = CUDA_HAS_WGMMA> static __device__ inline void cuda_give_back() {
    if constexpr (HAS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
    }
}
template <int REGISTERS, bool HAS = CUDA_HAS_WGMMA> static __device__ inline void cuda_ask_for() {
    if constexpr (HAS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
    }
}

// Operands of an instruction: so many sums, and their names in it.
#define CUDA_SUMS_AT(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define CUDA_SUMS_8     CUDA_SUMS_AT(0), CUDA_SUMS_AT(4)
#define CUDA_SUMS_16    CUDA_SUMS_8, CUDA_SUMS_AT(8), CUDA_SUMS_AT(12)
#define CUDA_SUMS_24    CUDA_SUMS_16, CUDA_SUMS_AT(16), CUDA_SUMS_AT(20)
#define CUDA_SUMS_32    CUDA_SUMS_24, CUDA_SUMS_AT(24), CUDA_SUMS_AT(28)
#define CUDA_SUMS_48                                                                               \
    CUDA_SUMS_32, CUDA_SUMS_AT(32), CUDA_SUMS_AT(36), CUDA_SUMS_AT(40), CUDA_SUMS_AT(44)
#define CUDA_SUMS_56 CUDA_SUMS_48, CUDA_SUMS_AT(48), CUDA_SUMS_AT(52)
#define CUDA_SUMS_64 CUDA_SUMS_56, CUDA_SUMS_AT(56), CUDA_SUMS_AT(60)
#define CUDA_SUMS_80                                                                               \
    CUDA_SUMS_64, CUDA_SUMS_AT(64), CUDA_SUMS_AT(68), CUDA_SUMS_AT(72), CUDA_SUMS_AT(76)
#define CUDA_SUMS_96                                                                               \
    CUDA_SUMS_80, CUDA_SUMS_AT(80), CUDA_SUMS_AT(84), CUDA_SUMS_AT(88), CUDA_SUMS_AT(92)
#define CUDA_SUMS_112                                                                              \
    CUDA_SUMS_96, CUDA_SUMS_AT(96), CUDA_SUMS_AT(100), CUDA_SUMS_AT(104), CUDA_SUMS_AT(108)
#define CUDA_NAMES_8  "%0, %1, %2, %3, %4, %5, %6, %7"
#define CUDA_NAMES_16 CUDA_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CUDA_NAMES_24 CUDA_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define CUDA_NAMES_32 CUDA_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define CUDA_NAMES_48                                                                              \
    CUDA_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "  \
                  "%47"
#define CUDA_NAMES_56 CUDA_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define CUDA_NAMES_64 CUDA_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define CUDA_NAMES_80                                                                              \
    CUDA_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, "  \
                  "%79"
#define CUDA_NAMES_96                                                                              \
    CUDA_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, "  \
                  "%95"
#define CUDA_NAMES_112                                                                             \
    CUDA_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "   \
                  "%109, %110, %111"

// d [count] = a · b, plus d where `adds`: both in shared memory. `kind`: columns, depth and types;
// the operands' names are those that follow the sums'.
#define CUDA_GROUP_SHARED(kind, turns, count, a_name, b_name, adds_name)                           \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name ", 0;\n"                      \
                 "wgmma.mma_async.sync.aligned.m64" kind " {" CUDA_NAMES_##count                   \
                 "}, " a_name ", " b_name ", adds, 1, 1" turns ";\n}"                              \
                 : CUDA_SUMS_##count                                                               \
                 : "l"(a), "l"(b), "r"(adds))
#define CUDA_ROWS_ALONG ", 0, 0" // the depth; of 16 bits, which may lie across it
#define CUDA_GROUP_REGISTERS(type)                                                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" CUDA_NAMES_64   \
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                                       \
                 : CUDA_SUMS_64                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// d [64] = a · b, plus d where `adds`: both in shared memory, rows along the depth.
template <typename T, bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_group_rows(float *d, uint64_t a, uint64_t b, int adds) {
    if constexpr (HAS && sizeof(T) == 2) {
        if constexpr (gpu_is_bf16<T>) {
            CUDA_GROUP_SHARED("n128k16.f32.bf16.bf16", CUDA_ROWS_ALONG, 64, "%64", "%65", "%66");
        } else {
            CUDA_GROUP_SHARED("n128k16.f32.f16.f16", CUDA_ROWS_ALONG, 64, "%64", "%65", "%66");
        }
    }
}

// d [64] += a · b: a in registers, b in shared memory with rows across the depth.
template <typename T, bool HAS = CUDA_HAS_WGMMA>
static __device__ inline void cuda_group_columns(float *d, const uint32_t *a, uint64_t b) {
    if constexpr (HAS && sizeof(T) == 2) {
        if constexpr (gpu_is_bf16<T>) {
            CUDA_GROUP_REGISTERS("bf16");
        } else {
            CUDA_GROUP_REGISTERS("f16");
        }
    }
}

#endif
