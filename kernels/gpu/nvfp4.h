// SPDX-License-Identifier: Apache-2.0
// Groups of 16 numbers as codes of e2m1 below one divisor on a GPU, with the steps of
// kernels/nvfp4.h: each is one correctly rounded operation. A code is kept as twice its number,
// which is whole, and the scale as half of it.
#ifndef BERTH_KERNELS_GPU_NVFP4_H
#define BERTH_KERNELS_GPU_NVFP4_H

#include "codes.h"

#include <nvfp4.h>

// To nearest, ties to the even code; a NaN becomes 12.
static __device__ inline int8_t gpu_twice_e2m1(float value) {
    const float size = fabsf(value);
    const int twice = size <= 0.25f   ? 0
                      : size < 0.75f  ? 1
                      : size <= 1.25f ? 2
                      : size < 1.75f  ? 3
                      : size <= 2.5f  ? 4
                      : size < 3.5f   ? 6
                      : size <= 5.0f  ? 8
                                      : 12;
    return static_cast<int8_t>(value < 0 ? -twice : twice);
}

// The number of e4m3 that a group's scale begins with; 16 codes.
static __device__ inline float gpu_nvfp4_group(const float *values, float global,
                                               gpu_pack<int8_t, BERTH_NVFP4_GROUP> *codes) {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < BERTH_NVFP4_GROUP; ++i) {
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    }
    const float wanted = gpu_mul_rn(global, gpu_mul_rn(largest, 1.0f / 6.0f));
    const float local =
        gpu_from_f8_bits(gpu_to_f8_bits(wanted < BERTH_F8_MAX ? wanted : BERTH_F8_MAX));
    const float factor =
        local > 0 ? gpu_div_rn(1.0f, gpu_mul_rn(local, gpu_div_rn(1.0f, global))) : 0.0f;
#pragma unroll
    for (int i = 0; i < BERTH_NVFP4_GROUP; ++i) {
        codes->at[i] = gpu_twice_e2m1(gpu_mul_rn(values[i], factor));
    }
    return local;
}

// What codes are multiplied by.
static __device__ inline float gpu_nvfp4_scale(float local, float divisor) {
    return gpu_mul_rn(0.5f, gpu_div_rn(local, divisor));
}

#endif
