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

static __host__ __device__ inline uint32_t cuda_digits_bytes(uint32_t groups) {
    return groups * (CUDA_DIGIT_BYTES + CUDA_DIGIT_KNOWN);
}

// Eight neighbours' digits: of the elements of even and of odd numbers, a byte each. Their group's
// unit, which 16 of a code's products with a first digit are counted in, no number where one of the
// elements is infinite; its elements' sum in such units.
struct cuda_digits {
    uint32_t even[CUDA_DIGITS];
    uint32_t odd[CUDA_DIGITS];
    float unit;
    float sum;
};

// Of four numbers, every other one of eight.
static __device__ inline void cuda_split_digits(const uint32_t *of, uint32_t *digits) {
    const uint32_t first = __byte_perm(of[0], of[2], 0x5140);
    const uint32_t second = __byte_perm(of[4], of[6], 0x5140);
    digits[0] =
        __byte_perm(__byte_perm(of[0], of[2], 0x62), __byte_perm(of[4], of[6], 0x62), 0x5410);
    digits[1] = __byte_perm(first, second, 0x7632);
    digits[2] = __byte_perm(first, second, 0x5410);
}

// By whole warps, whose threads have eights beside each other.
template <typename T>
static __device__ inline cuda_digits cuda_make_digits(const gpu_pack<T, 8> &x) {
    constexpr uint32_t BIASED = 0x4b408080u;
    float largest = 0;
    float sum = 0;
    uint32_t fixed[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        largest = fmaxf(largest, fabsf(gpu_float(x.at[i])));
    }
    const uint32_t bits = __reduce_max_sync(0xffffffffu, __float_as_uint(largest));
    const uint32_t exponent = max(bits >> 23, 20u);
    const float factor = __uint_as_float((274 - exponent) << 23);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float value = gpu_float(x.at[i]);
        fixed[i] = __float_as_uint(fmaf(value, factor, __uint_as_float(BIASED)));
        sum = fmaf(value, factor, sum); // a NaN shows here
    }
#pragma unroll
    for (int mask = CUDA_DIGIT_GROUP / 16; mask > 0; mask /= 2) {
        sum += gpu_shuffle_xor(sum, mask);
    }
    cuda_digits made;
    cuda_split_digits(fixed, made.even);
    cuda_split_digits(fixed + 1, made.odd);
    made.unit = __uint_as_float(exponent == 255 ? 0x7fc00000u : (exponent - 8) << 23);
    made.sum = sum * 0x1p-12f;
    return made;
}

// `store`, given a place in a row of so many groups and the word that goes there: of eight number
// `piece`, which are a word of codes.
template <typename F>
static __device__ inline void cuda_store_digits(const cuda_digits &made, int piece, F store) {
    constexpr int PIECES = CUDA_DIGIT_GROUP / 8;
    const uint32_t word = static_cast<uint32_t>(piece % PIECES);
    const uint32_t at = static_cast<uint32_t>(piece / PIECES) * CUDA_DIGIT_BYTES +
                        word % 4 / 2 * CUDA_DIGIT_HALF + word / 4 * 16 + word % 2 * 4;
#pragma unroll
    for (int digit = 0; digit < CUDA_DIGITS; ++digit) {
        store(at + digit * CUDA_DIGIT_PLANE, made.even[digit]);
        store(at + digit * CUDA_DIGIT_PLANE + 8, made.odd[digit]);
    }
}

#endif
