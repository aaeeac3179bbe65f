// SPDX-License-Identifier: Apache-2.0
// silu_and_mul of two neighbours at once.
#ifndef BERTH_KERNELS_CUDA_SILU_H
#define BERTH_KERNELS_CUDA_SILU_H

#include <gpu/activation.h>

#include <cuda/mma.h>

// Rounded twice, as if silu(gate) were stored. Why two: what rounds a lone number has a quarter of
// the rate of what rounds a pair, and shares its unit with the exponential.
template <typename T> static __device__ inline uint32_t cuda_silu_pair(const T *gate, const T *up) {
    const uint32_t silu =
        cuda_pair(gpu_silu<T>(gpu_float(gate[0])), gpu_silu<T>(gpu_float(gate[1])), T{});
    T both[2];
    memcpy(both, &silu, sizeof silu);
    return cuda_pair(gpu_float(both[0]) * gpu_float(up[0]), gpu_float(both[1]) * gpu_float(up[1]),
                     T{});
}

#endif
