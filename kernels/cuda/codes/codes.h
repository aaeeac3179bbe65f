// SPDX-License-Identifier: Apache-2.0
// Products of a few rows by codes of weights, bound by the bytes of the codes: what kernels are
// given, and the tensor core's products of codes. y [rows, outputs] is of 16 bits.
#ifndef BERTH_KERNELS_CUDA_CODES_H
#define BERTH_KERNELS_CUDA_CODES_H

#include <cuda/codes/groups.h>
#include <cuda/mma.h>
#include <gpu/launch.h>

#define CUDA_PACKED_ROWS 8   // at most, of codes of 4 bits
#define CUDA_CODED_ROWS  16  // at most, of codes of 8
#define CUDA_CODED_BYTES 64  // of codes: a row of the weight is a multiple
#define CUDA_CODED_GROUP 128 // codes of 4 bits that share a scale, or a multiple

struct cuda_coded {
    const char *x;         // codes of 8 bits, or numbers of y's type; rows x_gap bytes apart
    const uint8_t *weight; // [outputs, bytes], dense
    void *y;               // rows y_gap elements apart
    const void *bias;      // NULL: none
    berth_dtype bias_dtype;
    int64_t x_gap, y_gap;
    int rows, outputs, bytes; // bytes: of a row of the weight

    // Codes of 8 bits: a scale for every output, one for every row or all of them, and what is
    // added to sums of products, of i8 only. Of packed_linear the first alone, NULL: 1.
    const float *scales;
    const float *x_scales;
    int x_scale_gap; // 1, or 0: one for all
    const int32_t *sum_bias;
    // Of e4m3, where columns have scales of their own; the scales above are NULL then.
    cuda_groups groups;

    // Codes of 4 bits: scales [outputs, across] of 16 bits, zero points beside them.
    const uint16_t *group_scales;
    berth_dtype scale_dtype;
    const uint8_t *zeros; // NULL: 8
    int across;
    int group; // codes
};

// What all products of a site have; the rest is zero.
static inline cuda_coded cuda_coded_of(const berth_tensor *x, const berth_tensor *weight,
                                       const berth_tensor *bias, const berth_tensor *y) {
    cuda_coded all = {};
    const int64_t depth = x->shape[x->ndim - 1];
    all.rows = static_cast<int>(berth_tensor_row_count(x));
    all.outputs = static_cast<int>(weight->shape[0]);
    all.bytes = static_cast<int>(weight->shape[1]);
    all.x = static_cast<const char *>(berth_gpu_data(x));
    all.x_gap = (all.rows > 1 ? x->strides[0] : depth) * BERTH_DTYPE_BITS(x->dtype) / 8;
    all.weight = static_cast<const uint8_t *>(berth_gpu_data(weight));
    all.y = berth_gpu_data(y);
    all.y_gap = all.rows > 1 ? y->strides[0] : all.outputs;
    all.bias = bias ? berth_gpu_data(bias) : nullptr;
    all.bias_dtype = bias ? bias->dtype : BERTH_DTYPE_F32;
    return all;
}

// Compute capability 9. x of i8 or f8_e4m3fn.
berth_status cuda_coded_scaled(const gpu_op *op, const cuda_coded &all, berth_dtype x,
                               berth_dtype y);
// The same; x of y's type, codes of 4 bits.
berth_status cuda_coded_packed(const gpu_op *op, const cuda_coded &all, berth_dtype y);
// Whether the last one is as fast as the next one, whose x is a row in digits (digits.h).
bool cuda_coded_takes_digits(const cuda_coded &all);
berth_status cuda_coded_digits(const gpu_op *op, const cuda_coded &all, berth_dtype y);

// ---- device code --------------------------------------------------------------------------------

// As cuda_mma, of 32 codes: a register has four neighbours of the depth. e4m3 on capability 9 only.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_mma_codes(float *d, const uint32_t *a, const uint32_t *b) {
    if constexpr (IS_90) {
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

static __device__ inline void cuda_mma_codes(int32_t *d, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A number whose last bit counts ones: with a code of 4 bits in its lowest bits it is so much
// larger.
template <typename T> constexpr uint32_t cuda_counting = gpu_is_bf16<T> ? 0x4300u : 0x6400u;

template <typename T> static __device__ inline uint32_t cuda_minus(uint32_t a, uint32_t b) {
    uint32_t difference;
    if constexpr (gpu_is_bf16<T>) {
        asm("{\n.reg .b32 one;\nmov.b32 one, 0xbf80bf80;\n"
            "fma.rn.bf16x2 %0, %2, one, %1;\n}"
            : "=r"(difference)
            : "r"(a), "r"(b));
    } else {
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
    }
    return difference;
}

// (a & mask) | also, as one instruction: the compiler makes two of it when both are constants.
static __device__ inline uint32_t cuda_pick(uint32_t a, uint32_t mask, uint32_t also) {
    uint32_t picked;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(picked) : "r"(a), "r"(mask), "r"(also));
    return picked;
}

template <typename T> static __device__ inline uint32_t cuda_times(uint32_t a, uint32_t b) {
    uint32_t product;
    if constexpr (gpu_is_bf16<T>) {
        asm("{\n.reg .b32 none;\nmov.b32 none, 0x80008000;\n"
            "fma.rn.bf16x2 %0, %1, %2, none;\n}"
            : "=r"(product)
            : "r"(a), "r"(b));
    } else {
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    }
    return product;
}

// A word's eight codes less their zero point, exactly: codes i and i + 4 in pair i. `zero` is a
// pair of zero points, counted as above.
template <typename T>
static __device__ inline void cuda_widen(uint32_t word, uint32_t zero, uint32_t *pairs) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        pairs[i] =
            cuda_minus<T>(cuda_pick(word >> 4 * i, 0x000f000fu, cuda_counting<T> * 0x10001u), zero);
    }
}

// A word's codes where they are, in the same pairs, as the smallest numbers of bf16: its lowest 8
// bits count units of 2^-133, so that codes of pairs 1 and 3 are 16 times themselves. That is five
// instructions, not seven, of the kind that most of the work with codes of 4 bits consists of.
static __device__ inline void cuda_take(uint32_t word, uint32_t *pairs) {
    pairs[0] = word & 0x000f000fu;
    pairs[1] = word & 0x00f000f0u;
    pairs[2] = word >> 8 & 0x000f000fu;
    pairs[3] = word >> 8 & 0x00f000f0u;
}

// What is multiplied with them, and the unit of what comes of it. It lies in the middle of a
// float's exponents: a number of 2^63 or more is as good as infinite, and of one below 2^-57 bits
// are lost.
#define CUDA_TAKEN_UNIT 0x1p-69f
static __device__ inline void cuda_match(uint32_t *pairs) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t factor = i % 2 == 0 ? 0x5f805f80u : 0x5d805d80u; // 2^64, 2^60
        asm("fma.rn.bf16x2 %0, %1, %2, %3;"
            : "=r"(pairs[i])
            : "r"(pairs[i]), "r"(factor), "r"(0x80008000u));
    }
}

// Eight numbers of 16 bits in the same order.
static __device__ inline void cuda_interleave(const uint4 &x, uint32_t *pairs) {
    pairs[0] = __byte_perm(x.x, x.z, 0x5410);
    pairs[1] = __byte_perm(x.x, x.z, 0x7632);
    pairs[2] = __byte_perm(x.y, x.w, 0x5410);
    pairs[3] = __byte_perm(x.y, x.w, 0x7632);
}

#endif
