// SPDX-License-Identifier: Apache-2.0
// What codes of weights are to the kernel that few_codes.cu describes, which alone includes this:
// numbers of f16 in some two instructions for two codes.
#ifndef BERTH_KERNELS_CUDA_CODES_FEW_CODES_KINDS_H
#define BERTH_KERNELS_CUDA_CODES_FEW_CODES_KINDS_H

#include <cuda/codes_to_pairs.h>
#include <cuda/pieces.h>

namespace {

// Eight codes become four pairs, and place i of them has code order(i). UNIT: of the numbers. ZERO:
// the zero point where none is given, 0 where there is none.

struct codes_u4 {
    static constexpr int EIGHTS = 4; // of a chunk
    static constexpr float UNIT = 0x1p24f;
    static constexpr float ZERO = 8;
    static __device__ int order(int i) {
        return i / 2 + i % 2 * 4;
    }
    static __device__ void widen(const uint32_t *words, uint32_t *pairs) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pairs[i] = words[0] >> 4 * i & 0x000f000fu;
        }
    }
};

// By way of e4m3, whose numbers with such exponents are 2^-6 times as large.
struct codes_e2m1 {
    static constexpr int EIGHTS = 4;
    static constexpr float UNIT = 0x1p6f;
    static constexpr float ZERO = 0;
    static __device__ int order(int i) {
        return i % 4 * 2 + i / 4;
    }
    static __device__ void widen(const uint32_t *words, uint32_t *pairs) {
        const uint32_t word = words[0];
        const uint32_t even = cuda_pick(word << 4, 0x80808080u, word << 2 & 0x1c1c1c1cu);
        const uint32_t odd = cuda_pick(word, 0x80808080u, word >> 2 & 0x1c1c1c1cu);
        pairs[0] = cuda_code_pair<gpu_f16>(even);
        pairs[1] = cuda_code_pair<gpu_f16, 1>(even);
        pairs[2] = cuda_code_pair<gpu_f16>(odd);
        pairs[3] = cuda_code_pair<gpu_f16, 1>(odd);
    }
};

struct codes_e4m3 {
    static constexpr int EIGHTS = 2;
    static constexpr float UNIT = 1;
    static constexpr float ZERO = 0;
    static __device__ int order(int i) {
        return i;
    }
    static __device__ void widen(const uint32_t *words, uint32_t *pairs) {
        const uint4 four = cuda_codes_to_pairs<gpu_f16>(uint2{words[0], words[1]});
        pairs[0] = four.x;
        pairs[1] = four.y;
        pairs[2] = four.z;
        pairs[3] = four.w;
    }
};

// FLIP: what makes a code of i8 one of u8 that is 128 larger.
template <uint32_t FLIP> struct codes_of_bytes {
    static constexpr int EIGHTS = 2;
    static constexpr float UNIT = 0x1p24f;
    static constexpr float ZERO = 128;
    static __device__ int order(int i) {
        return i;
    }
    static __device__ void widen(const uint32_t *words, uint32_t *pairs) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            pairs[i] = __byte_perm(words[i / 2] ^ FLIP, 0, i % 2 == 0 ? 0x4140 : 0x4342);
        }
    }
};

} // namespace

#endif
