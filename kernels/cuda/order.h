// SPDX-License-Identifier: Apache-2.0
// What the blocks of a running kernel tell each other through the device's memory. A thread speaks
// for its block: between the block's threads and it stands a __syncthreads on both sides.
#ifndef BERTH_KERNELS_CUDA_ORDER_H
#define BERTH_KERNELS_CUDA_ORDER_H

#include <stdint.h>

// Counts one more; what it was before. What this block wrote is seen by blocks that arrive later,
// and this block sees what those wrote that came before.
static __device__ inline int cuda_arrive(int *count) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(count)
                 : "memory");
    return before;
}

// The same of a count that never begins anew.
static __device__ inline uint64_t cuda_arrive(uint64_t *count) {
    uint64_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;"
                 : "=l"(before)
                 : "l"(count)
                 : "memory");
    return before;
}

// Until so many have arrived, all of which run or have run; then what they wrote is seen.
static __device__ inline void cuda_await(const uint64_t *count, uint64_t wanted) {
    uint64_t now;
    do {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(count) : "memory");
    } while (now < wanted);
}

#endif
