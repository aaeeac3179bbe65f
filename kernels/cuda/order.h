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

#endif
