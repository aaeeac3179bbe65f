// SPDX-License-Identifier: Apache-2.0
// Codes of f8_e4m3fn as pairs of 16-bit numbers, exactly, on their way from shared memory to the
// tensor cores.
#ifndef BERTH_KERNELS_CUDA_CODES_TO_PAIRS_H
#define BERTH_KERNELS_CUDA_CODES_TO_PAIRS_H

#include <cuda/mma.h>
#include <gpu/codes.h>

// Two codes, those of a register's half HALF, as a pair, the first in the lower half. Capability 9
// has an instruction for pairs of f16, which widen to f32 and narrow to bf16 exactly; it takes
// either half as it is.
template <typename T, int HALF = 0, bool IS_90 = CUDA_IS_90>
static __device__ inline uint32_t cuda_code_pair(uint32_t codes) {
    if constexpr (IS_90) {
        uint32_t pair;
        if constexpr (HALF == 0) {
            asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\n"
                "cvt.rn.f16x2.e4m3x2 %0, low;\n}"
                : "=r"(pair)
                : "r"(codes));
        } else {
            asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\n"
                "cvt.rn.f16x2.e4m3x2 %0, high;\n}"
                : "=r"(pair)
                : "r"(codes));
        }
        if constexpr (gpu_is_bf16<T>) {
            return cuda_pair(gpu_float(gpu_f16{static_cast<uint16_t>(pair)}),
                             gpu_float(gpu_f16{static_cast<uint16_t>(pair >> 16)}), T{});
        } else {
            return pair;
        }
    } else {
        codes >>= 16 * HALF;
        return cuda_pair(gpu_from_f8_bits(codes & 0xffu), gpu_from_f8_bits(codes >> 8 & 0xffu),
                         T{});
    }
}

// Eight codes in their order.
template <typename T> static __device__ inline uint4 cuda_codes_to_pairs(const uint2 &codes) {
    return uint4{cuda_code_pair<T, 0>(codes.x), cuda_code_pair<T, 1>(codes.x),
                 cuda_code_pair<T, 0>(codes.y), cuda_code_pair<T, 1>(codes.y)};
}

#endif
