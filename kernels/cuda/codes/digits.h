// SPDX-License-Identifier: Apache-2.0
// A row of x in digits: whole numbers of 22 bits in units of a power of two, which the largest of
// 256 neighbours decides, as three digits of 8 bits. Where they lie suits streamed_digits.h, which
// multiplies codes of 4 bits by them.
//
// A digit is a byte that is never negative, less one of biases 64, 128 and 128: a float beside 2^23
// and all biases has them in its lowest bits, and nothing is to be done but to put them in order.
#ifndef BERTH_KERNELS_CUDA_CODES_DIGITS_H
#define BERTH_KERNELS_CUDA_CODES_DIGITS_H

#include <gpu/element.h>

#define CUDA_DIGITS      3   // of 1, 2^-8, 2^-16
#define CUDA_DIGIT_GROUP 128 // elements whose unit and sum lie together

// Bytes: of a digit of half a group's elements; of such a half; of a group; of its unit and sum,
// which lie behind the digits of all groups.
#define CUDA_DIGIT_PLANE 64
#define CUDA_DIGIT_HALF  (CUDA_DIGITS * CUDA_DIGIT_PLANE)
#define CUDA_DIGIT_BYTES (2 * CUDA_DIGIT_HALF)
#define CUDA_DIGIT_KNOWN 8

#define CUDA_DIGITS_BIASED 0x4b408080u // the float that is made of 2^23 and all biases

static __host__ __device__ inline uint32_t cuda_digits_bytes(uint32_t groups) {
    return groups * (CUDA_DIGIT_BYTES + CUDA_DIGIT_KNOWN);
}

// Of four numbers, every other one of eight.
static __device__ inline void cuda_split_digits(const uint32_t *of, uint32_t *digits) {
    const uint32_t first = __byte_perm(of[0], of[2], 0x5140);
    const uint32_t second = __byte_perm(of[4], of[6], 0x5140);
    digits[0] =
        __byte_perm(__byte_perm(of[0], of[2], 0x62), __byte_perm(of[4], of[6], 0x62), 0x5410);
    digits[1] = __byte_perm(first, second, 0x7632);
    digits[2] = __byte_perm(first, second, 0x5410);
}

// Of a float that is no smaller than 256 numbers, at least 20: so a factor of 2^(147 - it), by
// which they come below 2^21, and their unit are there.
template <typename T>
static __device__ inline uint32_t cuda_digits_exponent(const gpu_pack<T, 8> &x) {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        largest = fmaxf(largest, fabsf(gpu_float(x.at[i])));
    }
    return max(__reduce_max_sync(0xffffffffu, __float_as_uint(largest)) >> 23, 20u);
}

// The digits of even and of odd numbers of eight, a byte each, and what they add up to, no number
// where one of them is none.
template <typename T>
static __device__ inline float cuda_split_eight(const gpu_pack<T, 8> &x, uint32_t exponent,
                                                uint32_t (*digits)[CUDA_DIGITS]) {
    const float factor = __uint_as_float((274 - exponent) << 23);
    uint32_t fixed[8];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float value = gpu_float(x.at[i]);
        fixed[i] = __float_as_uint(fmaf(value, factor, __uint_as_float(CUDA_DIGITS_BIASED)));
        sum = fmaf(value, factor, sum);
    }
    cuda_split_digits(fixed, digits[0]);
    cuda_split_digits(fixed + 1, digits[1]);
    return sum;
}

// COUNT eights of a thread, by whole warps whose threads have neighbours. `store(i, at, word)`: a
// word of number i's digits goes `at` bytes behind where its group's begin, of which it is number
// `piece`. `know(i, unit, sum)`: of its group the unit, no number where an element is infinite,
// that 16 of a code's products with a first digit are counted in, and the elements' sum in such
// units.
template <typename T, int COUNT, typename S, typename N>
static __device__ inline void cuda_make_digits(const gpu_pack<T, 8> *x, int piece, S store,
                                               N know) {
    const uint32_t word = static_cast<uint32_t>(piece % (CUDA_DIGIT_GROUP / 8));
    const uint32_t at = word % 4 / 2 * CUDA_DIGIT_HALF + word / 4 * 16 + word % 2 * 4;
    uint32_t exponent[COUNT];
    float sum[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        exponent[i] = cuda_digits_exponent(x[i]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        uint32_t digits[2][CUDA_DIGITS];
        sum[i] = cuda_split_eight(x[i], exponent[i], digits);
#pragma unroll
        for (int digit = 0; digit < CUDA_DIGITS; ++digit) {
            store(i, at + digit * CUDA_DIGIT_PLANE, digits[0][digit]);
            store(i, at + digit * CUDA_DIGIT_PLANE + 8, digits[1][digit]);
        }
    }
#pragma unroll
    for (int mask = CUDA_DIGIT_GROUP / 16; mask > 0; mask /= 2) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            sum[i] += gpu_shuffle_xor(sum[i], mask);
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        know(i, __uint_as_float(exponent[i] == 255 ? 0x7fc00000u : (exponent[i] - 8) << 23),
             sum[i] * 0x1p-12f);
    }
}

#endif
