// SPDX-License-Identifier: Apache-2.0
// One row of x by codes of 4 bits, in whole numbers: the kind of streamed_codes.cu that has least
// to do for a code. The tensor core multiplies bytes of whole numbers, so that codes are taken out
// of their words by a mask, eight by two operations: those in the upper halves of bytes are 16
// times themselves, and their sums are added to 16 times the others'. x is three digits (digits.h),
// of each of which the second operand has a column, and beside it one of ones, whose sums say how
// much too large those of the biased digits are.
//
// What that loses is 2^-22 of a number as large as a group's largest; sums of a group are exact.
// Products with numbers of 16 bits, summed in floats, lose more.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_DIGITS_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_DIGITS_H

#include <cuda/codes/digits.h>
#include <cuda/codes/streamed_kinds.h>
#include <cuda/codes/streamed_ring.h>

namespace {

// A float that counts ones, and what is added to it: sums of a group are below 2^22.
constexpr int32_t DIGIT_COUNTING = 0x4b400000;
constexpr float DIGIT_COUNTED = 12582912.0f;

// Codes times digits, added to `c`.
__device__ void multiply_digits(int32_t *d, const uint32_t *a, uint32_t b0, uint32_t b1,
                                const int32_t *c) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
          "r"(c[2]), "r"(c[3]));
}

template <typename T> struct digits_kind : rows_kind {
    using sum = float;
    static constexpr bool IS_NEAR = true;
    static constexpr bool IN_DIGITS = true;
    static constexpr int WARPS = 8;
    static constexpr int STEPS = STAGE / WARPS / PIECE;
    static constexpr int PIECES = 1;
    static constexpr int X_RATIO = CUDA_DIGIT_BYTES / PIECE;
    static constexpr int X_LOADS = 2;
    static constexpr int X_APART = CUDA_DIGIT_HALF;
    static constexpr int GROUP_BYTES = CUDA_DIGIT_KNOWN;

    template <int EIGHTS> struct sums {
        float at[2] = {}; // outputs g and g + 8, of digit c

        template <typename R> __device__ void leave(R *room) const {
            const uint32_t digit = threadIdx.x % 4;
            const float weight =
                digit < CUDA_DIGITS ? __uint_as_float((127 - 8 * digit) << 23) : 0.0f;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float sum = at[half] * weight;
                sum += gpu_shuffle_xor(sum, 1);
                sum += gpu_shuffle_xor(sum, 2);
                if (digit == 0) {
                    room->at[0][threadIdx.x / 4 + half * 8] = sum;
                }
            }
        }
    };
    // Scales and zero points of outputs g and g + 8 for both steps of a stage, and where a step
    // finds the unit of its inputs and their sum.
    struct extra {
        uint32_t scales[2];
        uint32_t zeros[2];
        uint32_t group;

        __device__ void load(const cuda_coded &, int, int byte, uint32_t sums) {
            group = sums + static_cast<uint32_t>(byte / PIECE * GROUP_BYTES);
        }
        __device__ uint32_t fetch(const cuda_coded &all, uint32_t beside, int step) {
            if (step > 0) {
                return 0;
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t row = beside + half * 8 * STAGE_ROW;
                scales[half] = load_shared_32(row + 4 * threadIdx.y);
                zeros[half] = all.zeros ? load_shared_16(row + SCALES + 2 * threadIdx.y) : 0x808u;
            }
            return scales[0] | scales[1] | zeros[0] | zeros[1];
        }
        __device__ float scale(int half, bool is_bf16, int step) const {
            const uint32_t bits = scales[half];
            return is_bf16
                       ? __uint_as_float(step == 0 ? bits << 16 : bits & 0xffff0000u)
                       : gpu_float(gpu_f16{static_cast<uint16_t>(step == 0 ? bits : bits >> 16)});
        }
        // Less than none, as what is taken off a sum.
        __device__ float zero(int half, int step) const {
            return 8388608.0f -
                   __uint_as_float(__byte_perm(zeros[half], 0x4b000000u, 0x7550 + step));
        }
    };

    // Columns of digits, and of ones.
    static __device__ uint32_t place(const cuda_coded &, uint32_t x, uint32_t, int byte) {
        const uint32_t column = threadIdx.x / 4;
        return column % 2 == 0 && column < 2 * CUDA_DIGITS
                   ? x + static_cast<uint32_t>(byte) + column / 2 * CUDA_DIGIT_PLANE +
                         threadIdx.x % 4 * 16
                   : 0;
    }
    static __device__ uint32_t rest() {
        const uint32_t column = threadIdx.x / 4;
        return column % 2 == 1 && column < 2 * CUDA_DIGITS ? 0x01010101u : 0;
    }

    template <int EIGHTS>
    static __device__ void multiply(const codes *w, const inputs<EIGHTS> &x, const extra &of,
                                    bool is_bf16, int step, sums<EIGHTS> *to) {
        const uint32_t first[4] = {w->low.x, w->low.y, w->low.z, w->low.w};
        const uint32_t second[4] = {w->high.x, w->high.y, w->high.z, w->high.w};
        int32_t low[4] = {};
        int32_t high[4] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t words[4] = {first[2 * i], second[2 * i], first[2 * i + 1],
                                       second[2 * i + 1]};
            uint32_t lower[4];
            uint32_t upper[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                lower[j] = words[j] & 0x0f0f0f0fu;
                upper[j] = words[j] & 0xf0f0f0f0u;
            }
            const uint4 b = x.at[0][i];
            multiply_digits(low, lower, b.x, b.y, low);
            multiply_digits(high, upper, b.z, b.w, high);
        }
        const bool is_first = threadIdx.x % 4 == 0;
        const int32_t bias = is_first ? -64 : -128;
        const float2 group = load_pair(of.group + static_cast<uint32_t>(step * GROUP_BYTES));
        const float sum = is_first ? group.y : 0.0f;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int32_t *l = low + 2 * half;
            const int32_t *h = high + 2 * half;
            const int32_t counted =
                (bias * h[1] + h[0]) + (16 * bias * l[1] + (16 * l[0] + DIGIT_COUNTING));
            const float product =
                fmaf(of.zero(half, step), sum, __int_as_float(counted) - DIGIT_COUNTED);
            to->at[half] = fmaf(product, of.scale(half, is_bf16, step) * group.x, to->at[half]);
        }
    }

    // As keep_pieces.
    template <int COUNT>
    static __device__ void keep(const ring &to, int first, int pieces, const uint4 *x) {
        const auto piece = [&](int i) { return first + i * WARPS * 32; };
        cuda_make_digits<T, COUNT>(
            reinterpret_cast<const gpu_pack<T, 8> *>(x), first,
            [&](int i, uint32_t at, uint32_t word) {
                const int group = piece(i) / GROUP_PIECES;
                if (piece(i) < pieces) {
                    store_shared_32(to.x + static_cast<uint32_t>(group * CUDA_DIGIT_BYTES) + at,
                                    word);
                }
            },
            [&](int i, float unit, float sum) {
                const int group = piece(i) / GROUP_PIECES;
                if (piece(i) < pieces && first % GROUP_PIECES == 0) {
                    const uint32_t known = to.sums + static_cast<uint32_t>(group * GROUP_BYTES);
                    store_shared_32(known, __float_as_uint(unit));
                    store_shared_32(known + 4, __float_as_uint(sum));
                }
            });
    }
    static __device__ float2 load_pair(uint32_t from) {
        return packed_kind<T, true>::load_pair(from);
    }
};

} // namespace

#endif
