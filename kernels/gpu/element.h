// SPDX-License-Identifier: Apache-2.0
// The three types of elements in device code: float, and 16 bits that are widened to it and rounded
// from it; loads of up to 16 bytes; sums over a warp's 32 lanes.
#ifndef BERTH_KERNELS_GPU_ELEMENT_H
#define BERTH_KERNELS_GPU_ELEMENT_H

#include <gpu/gpu.h>

#include <math.h>

struct gpu_bf16 {
    uint16_t bits;
};
struct gpu_f16 {
    uint16_t bits;
};

template <typename T> constexpr bool gpu_is_bf16 = false;
template <> inline constexpr bool gpu_is_bf16<gpu_bf16> = true;

static __device__ inline float gpu_float(float value) {
    return value;
}
static __device__ inline float gpu_float(gpu_bf16 value) {
    return __uint_as_float((uint32_t)value.bits << 16);
}
static __device__ inline float gpu_float(gpu_f16 value) {
    return gpu_from_f16_bits(value.bits);
}

// Rounds to nearest, ties to even.
template <typename T> static __device__ inline T gpu_round(float value);
template <> __device__ inline float gpu_round<float>(float value) {
    return value;
}
template <> __device__ inline gpu_bf16 gpu_round<gpu_bf16>(float value) {
    return gpu_bf16{gpu_to_bf16_bits(value)};
}
template <> __device__ inline gpu_f16 gpu_round<gpu_f16>(float value) {
    return gpu_f16{gpu_to_f16_bits(value)};
}

template <typename T> static __device__ inline float gpu_rounded(float value) {
    return gpu_float(gpu_round<T>(value));
}

// f8_e4m3fn, to nearest, ties to even, saturated; the steps of berth_to_f8 (kernels/tensor.h).
static __device__ inline uint8_t gpu_to_f8_bits(float value) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t finite = magnitude < 0x43e00000u ? magnitude : 0x43e00000u;
    const uint32_t normal = (finite - 0x3c000000u + 0x7ffffu + (finite >> 20 & 1u)) >> 20;
    const uint32_t shifted = __float_as_uint(gpu_add_rn(__uint_as_float(finite), 0x1p14f));
    const uint32_t code = finite < 0x3c800000u ? shifted - 0x46800000u : normal;
    return static_cast<uint8_t>((bits >> 24 & 0x80u) | (magnitude > 0x7f800000u ? 0x7fu : code));
}

// Two of them, the first in the lower byte. Of products: a GPU's NaN has no sign then.
static __device__ inline uint16_t gpu_to_f8_pair(float low, float high) {
    uint16_t pair = 0;
    return gpu_make_f8_pair(low, high, &pair)
               ? pair
               : static_cast<uint16_t>(gpu_to_f8_bits(low) | gpu_to_f8_bits(high) << 8);
}

// Element `index` of memory of a type that is known at run time only.
static __device__ inline float gpu_load_any(const void *from, berth_dtype dtype, int64_t index) {
    return dtype == BERTH_DTYPE_F32    ? static_cast<const float *>(from)[index]
           : dtype == BERTH_DTYPE_BF16 ? gpu_float(static_cast<const gpu_bf16 *>(from)[index])
                                       : gpu_float(static_cast<const gpu_f16 *>(from)[index]);
}

static __device__ inline void gpu_store_any(void *to, berth_dtype dtype, int64_t index,
                                            float value) {
    if (dtype == BERTH_DTYPE_F32) {
        static_cast<float *>(to)[index] = value;
    } else if (dtype == BERTH_DTYPE_BF16) {
        static_cast<gpu_bf16 *>(to)[index] = gpu_round<gpu_bf16>(value);
    } else {
        static_cast<gpu_f16 *>(to)[index] = gpu_round<gpu_f16>(value);
    }
}

static __device__ inline int64_t gpu_integer(const void *from, berth_dtype dtype, int64_t index) {
    return dtype == BERTH_DTYPE_I64 ? static_cast<const int64_t *>(from)[index]
                                    : static_cast<const int32_t *>(from)[index];
}

// N elements that are loaded and stored at once.
template <typename T, int N> struct alignas(sizeof(T) * N) gpu_pack { T at[N]; };

// Elements of 16 bytes.
template <typename T> constexpr int gpu_wide = 16 / static_cast<int>(sizeof(T));

template <typename T, int N>
static __device__ inline gpu_pack<T, N> gpu_load(const T *from, int64_t index) {
    return *reinterpret_cast<const gpu_pack<T, N> *>(from + index);
}

template <typename T, int N>
static __device__ inline void gpu_store(T *to, int64_t index, const gpu_pack<T, N> &pack) {
    *reinterpret_cast<gpu_pack<T, N> *>(to + index) = pack;
}

// The logistic function; for 16-bit results with the device's fast functions, whose error the
// rounding hides.
template <typename T> static __device__ inline float gpu_sigmoid(float x) {
    return sizeof(T) == 2 ? __fdividef(1.0f, 1.0f + __expf(-x)) : 1.0f / (1.0f + expf(-x));
}

// ln(1 + e^x); from 20 on x itself, as PyTorch has it.
static __device__ inline float gpu_softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

static __device__ inline float gpu_warp_sum(float value) {
    for (int mask = 16; mask > 0; mask /= 2) {
        value += gpu_shuffle_xor(value, mask);
    }
    return value;
}

// The sum over all threads of a block of whole warps, the same bits in each; `room` is shared
// memory for a float a warp, free again after the next barrier.
static __device__ inline float gpu_block_sum(float value, float *room) {
    value = gpu_warp_sum(value);
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = value;
    }
    __syncthreads();
    const unsigned lane = threadIdx.x % 32;
    return gpu_warp_sum(lane < blockDim.x / 32 ? room[lane] : 0.0f);
}

#endif
