// SPDX-License-Identifier: Apache-2.0
// Boxes of results on their way from shared memory to y, in kernels of many rows.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_SEND_H
#define BERTH_KERNELS_CUDA_CODES_MANY_SEND_H

#include <cuda/codes/many_stage.h>

namespace {

__device__ void group_sync() {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory");
}

// A box of y on its way, by one thread.
template <bool IS_90 = CUDA_IS_90>
__device__ void send_out(const CUtensorMap *y, int output, int row, uint32_t from) {
    if constexpr (IS_90) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n"
                     "cp.async.bulk.commit_group;" ::"l"(y),
                     "r"(output), "r"(row), "r"(from)
                     : "memory");
    }
}

// Until what this thread has sent out has been read.
template <bool IS_90 = CUDA_IS_90> __device__ void wait_for_sent() {
    if constexpr (IS_90) {
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

} // namespace

#endif
