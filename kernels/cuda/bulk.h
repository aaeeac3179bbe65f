// SPDX-License-Identifier: Apache-2.0
// Bulk copies into shared memory and the barriers that count their bytes: compute capability 9. On
// others these functions do nothing, and no kernel that uses them is launched.
#ifndef BERTH_KERNELS_CUDA_BULK_H
#define BERTH_KERNELS_CUDA_BULK_H

#include <gpu/element.h>

// All addresses are of shared memory unless they are pointers.

template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_barrier_init(uint32_t barrier, uint32_t arrivals) {
    if constexpr (IS_90) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                     : "memory");
    }
}

// After the inits, before the first use by others and by copies.
template <bool IS_90 = CUDA_IS_90> static __device__ inline void cuda_barrier_publish() {
    if constexpr (IS_90) {
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
}

template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_barrier_arrive(uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    }
}

// One of a whole warp, behind what its lanes have done.
static __device__ inline void cuda_barrier_arrive_warp(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) {
        cuda_barrier_arrive(barrier);
    }
}

// One, when the copies of 16 bytes that this thread has begun are there (mma.h).
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_barrier_arrive_copied(uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier)
                     : "memory");
    }
}

// An arrival, and so many bytes that copies still have to bring.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_barrier_expect(uint32_t barrier, uint32_t bytes) {
    if constexpr (IS_90) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                     "r"(bytes)
                     : "memory");
    }
}

// Until the phase of that parity is over.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_barrier_wait(uint32_t barrier, uint32_t parity) {
    if constexpr (IS_90) {
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@done bra finished;\n"
                     "bra again;\n"
                     "finished:\n"
                     "}" ::"r"(barrier),
                     "r"(parity)
                     : "memory");
    }
}

// `bytes` a multiple of 16, both sides aligned to 16. What is read so is read once: it is the first
// to leave the second cache.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_bulk_copy(uint32_t to, const void *from, uint32_t bytes,
                                             uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("{\n"
                     ".reg .b64 once;\n"
                     "createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
                     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1], %2, [%3], once;\n"
                     "}" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(barrier)
                     : "memory");
    }
}

// The same of what many blocks read.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_bulk_copy_shared(uint32_t to, const void *from, uint32_t bytes,
                                                    uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], %2, [%3];" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(barrier)
                     : "memory");
    }
}

// True for one thread of a whole warp. Why not by its number: the assembler knows that what comes
// behind this has one thread, and copies, whose operands a warp has one of, need no loop over
// lanes.
template <bool IS_90 = CUDA_IS_90> static __device__ inline bool cuda_is_elected() {
    uint32_t elected = 0;
    if constexpr (IS_90) {
        asm volatile("{\n"
                     ".reg .pred one;\n"
                     "elect.sync _|one, 0xffffffff;\n"
                     "selp.u32 %0, 1, 0, one;\n"
                     "}"
                     : "=r"(elected));
    }
    return elected != 0;
}

// Stages of shared memory, one behind another: the addresses of the first and of its barriers.
struct cuda_ring {
    uint32_t memory;
    uint32_t full;
    uint32_t empty;
};

// Which stage of a ring is next, and the parity of its phase.
struct cuda_place {
    int stage;
    uint32_t parity;

    __device__ void go_on(int stages) {
        stage = stage + 1 == stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

static __device__ inline uint4 cuda_load_shared(uint32_t from) {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(from));
    return value;
}

// 16 bytes, or none. Why no branch: a warp that finds all it waits for goes through its loads as
// fast as it can.
static __device__ inline void cuda_load_shared_if(bool is_there, uint32_t from, uint4 *to) {
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "setp.ne.u32 there, %5, 0;\n"
                 "@there ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];\n"
                 "}"
                 : "+r"(to->x), "+r"(to->y), "+r"(to->z), "+r"(to->w)
                 : "r"(from), "r"(static_cast<uint32_t>(is_there)));
}

// A barrier's address, which is there only when `loaded`, out of shared memory, is: what arrives at
// it cannot come before. Why: loads that wait behind others are overtaken by the next copy, and the
// assembler moves an arrival before the products that need them. `positive` is above 0, which the
// compiler must not be able to see.
static __device__ inline uint32_t cuda_behind_loads(uint32_t barrier, uint32_t loaded,
                                                    int positive) {
    return barrier + (loaded & static_cast<uint32_t>(positive >> 31));
}

#endif
