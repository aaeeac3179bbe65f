// SPDX-License-Identifier: Apache-2.0
// One vocabulary of float vectors for AVX-512 (F, BW, DQ, VL), AVX2 (with FMA and F16C) and
// portable C. The build compiles every file of this folder once per instruction set and gives its
// entry the suffix of the set; platform-cpu registers the entries of the best set that the machine
// has. So a kernel is written once, in these words or in plain loops, without a condition.
//
// How a kernel uses it: + - * / work on berth_vec as on floats; BERTH_LANES floats at a time with
// berth_vec_load … berth_vec_store, the rest of a row with the _part forms; rows of any float dtype
// with the _as forms, whose dtype should be a constant where they are inlined. A sum that is kept
// per lane has the same order in every set. For threads see berth_cpu.run in cpu.h.
#ifndef BERTH_KERNELS_CPU_SIMD_H
#define BERTH_KERNELS_CPU_SIMD_H

#include <berth/types.h>

#include <tensor.h>

#define BERTH_INLINE static inline __attribute__((always_inline))

// For functions that hardly ever run: ends of rows.
#define BERTH_SELDOM static __attribute__((noinline, unused))

// Unrolls the loop that follows, whose bounds are constants: what it indexes stays in registers.
#define BERTH_UNROLL _Pragma("GCC unroll 16")

#define BERTH_PREFETCH(address) __builtin_prefetch((address), 0, 3) // need not be valid

// ---- what differs -------------------------------------------------------------------------------

// BERTH_TILE_ROWS is the largest number of rows of two vectors whose sums fit in the registers.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include <immintrin.h>

#define BERTH_LANES           16
#define BERTH_LANE_NUMBERS    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define BERTH_TILE_ROWS       12
#define BERTH_TILE_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

typedef __m512 berth_vec;

BERTH_INLINE berth_vec berth_vec_of(float value) {
    return _mm512_set1_ps(value);
}

BERTH_INLINE berth_vec berth_vec_max(berth_vec a, berth_vec b) {
    return _mm512_max_ps(a, b);
}

BERTH_INLINE berth_vec berth_vec_fma(berth_vec a, berth_vec b, berth_vec c) {
    return _mm512_fmadd_ps(a, b, c);
}

BERTH_INLINE berth_vec berth_vec_load_f16(const uint16_t *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

BERTH_INLINE void berth_vec_store_f16(uint16_t *to, berth_vec a) {
    _mm256_storeu_si256((void *)to, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

// Why not the intrinsic: all that it is inlined into would have to be compiled for BF16.
BERTH_INLINE berth_vec berth_vec_dot(berth_vec sum, berth_vec a, berth_vec b) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

BERTH_INLINE int berth_vec_has_dot(void) {
    return __builtin_cpu_supports("avx512bf16") != 0;
}

BERTH_INLINE berth_vec berth_vec_low(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

BERTH_INLINE berth_vec berth_vec_high(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#define BERTH_LANES           8
#define BERTH_LANE_NUMBERS    0, 1, 2, 3, 4, 5, 6, 7
#define BERTH_TILE_ROWS       6
#define BERTH_TILE_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef __m256 berth_vec;

BERTH_INLINE berth_vec berth_vec_of(float value) {
    return _mm256_set1_ps(value);
}

BERTH_INLINE berth_vec berth_vec_max(berth_vec a, berth_vec b) {
    return _mm256_max_ps(a, b);
}

BERTH_INLINE berth_vec berth_vec_fma(berth_vec a, berth_vec b, berth_vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

BERTH_INLINE berth_vec berth_vec_load_f16(const uint16_t *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

BERTH_INLINE void berth_vec_store_f16(uint16_t *to, berth_vec a) {
    _mm_storeu_si128((void *)to, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

BERTH_INLINE berth_vec berth_vec_low(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

BERTH_INLINE berth_vec berth_vec_high(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

#else

#define BERTH_LANES           4
#define BERTH_LANE_NUMBERS    0, 1, 2, 3
#define BERTH_TILE_ROWS       6
#define BERTH_TILE_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef float berth_vec __attribute__((vector_size(16)));

BERTH_INLINE berth_vec berth_vec_of(float value) {
    return (berth_vec){value, value, value, value};
}

BERTH_INLINE berth_vec berth_vec_max(berth_vec a, berth_vec b) {
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        a[lane] = a[lane] > b[lane] ? a[lane] : b[lane];
    }
    return a;
}

BERTH_INLINE berth_vec berth_vec_fma(berth_vec a, berth_vec b, berth_vec c) {
    return a * b + c;
}

BERTH_INLINE berth_vec berth_vec_load_f16(const uint16_t *from) {
    return (berth_vec){berth_from_f16(from[0]), berth_from_f16(from[1]), berth_from_f16(from[2]),
                       berth_from_f16(from[3])};
}

BERTH_INLINE void berth_vec_store_f16(uint16_t *to, berth_vec a) {
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        to[lane] = berth_to_f16(a[lane]);
    }
}

BERTH_INLINE berth_vec berth_vec_low(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}

BERTH_INLINE berth_vec berth_vec_high(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

#endif

#if BERTH_LANES < 16
// sum += first · first + second · second of each pair of bf16. Only where berth_vec_has_dot holds.
#define berth_vec_dot(sum, a, b) ((void)(a), (void)(b), (sum))
#define berth_vec_has_dot()      0
#endif

// Whether this machine runs what is compiled for a set (all that have AVX2 have F16C, too).
#if defined(__x86_64__)
#define BERTH_MACHINE_HAS(feature) (__builtin_cpu_supports(feature) != 0)
#define BERTH_PAUSE()              __builtin_ia32_pause()
#else
#define BERTH_MACHINE_HAS(feature) 0
#define BERTH_PAUSE()              ((void)0)
#endif
#define BERTH_MACHINE_HAS_AVX2 (BERTH_MACHINE_HAS("avx2") && BERTH_MACHINE_HAS("fma"))
#define BERTH_MACHINE_HAS_AVX512                                                                   \
    (BERTH_MACHINE_HAS_AVX2 && BERTH_MACHINE_HAS("avx512f") && BERTH_MACHINE_HAS("avx512bw") &&    \
     BERTH_MACHINE_HAS("avx512dq") && BERTH_MACHINE_HAS("avx512vl"))

// ---- what every set has -------------------------------------------------------------------------

typedef uint32_t berth_vec_bits __attribute__((vector_size(BERTH_LANES * 4)));
typedef int32_t berth_vec_ints __attribute__((vector_size(BERTH_LANES * 4)));
typedef uint16_t berth_vec_halves __attribute__((vector_size(BERTH_LANES * 2)));

BERTH_INLINE berth_vec berth_vec_load(const void *from) {
    berth_vec a;
    memcpy(&a, from, sizeof a);
    return a;
}

BERTH_INLINE void berth_vec_store(float *to, berth_vec a) {
    memcpy(to, &a, sizeof a);
}

// The 32 bits at an address, which need not be aligned, in every lane.
BERTH_INLINE berth_vec berth_vec_of_bits(const void *from) {
    float value;
    memcpy(&value, from, sizeof value);
    return berth_vec_of(value);
}

BERTH_INLINE berth_vec berth_vec_load_bf16(const uint16_t *from) {
    berth_vec_halves halves;
    memcpy(&halves, from, sizeof halves);
    return (berth_vec)(__builtin_convertvector(halves, berth_vec_bits) << 16);
}

// Rounds as berth_to_bf16 does.
BERTH_INLINE void berth_vec_store_bf16(uint16_t *to, berth_vec a) {
    const berth_vec_bits bits = (berth_vec_bits)a;
    const berth_vec_bits is_nan = (berth_vec_bits)((bits & 0x7fffffffu) > 0x7f800000u);
    const berth_vec_bits rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const berth_vec_bits quiet = bits >> 16 | 0x40u;
    const berth_vec_bits kept = (rounded & ~is_nan) | (quiet & is_nan);
    const berth_vec_halves halves = __builtin_convertvector(kept, berth_vec_halves);
    memcpy(to, &halves, sizeof halves);
}

// Of BERTH_LANES pairs of bf16: the first of each, and the second.
BERTH_INLINE berth_vec berth_vec_first_of(berth_vec pairs) {
    return (berth_vec)((berth_vec_bits)pairs << 16);
}

BERTH_INLINE berth_vec berth_vec_second_of(berth_vec pairs) {
    return (berth_vec)((berth_vec_bits)pairs & 0xffff0000u);
}

BERTH_INLINE berth_vec berth_vec_first(const void *pairs) {
    return berth_vec_first_of(berth_vec_load(pairs));
}

BERTH_INLINE berth_vec berth_vec_second(const void *pairs) {
    return berth_vec_second_of(berth_vec_load(pairs));
}

// Rows become columns. berth_vec_low and _high give the lower and the upper halves of two vectors
// by turns; each round halves the distance between neighbours of a column.
BERTH_INLINE void berth_vec_transpose(berth_vec rows[BERTH_LANES]) {
    BERTH_UNROLL
    for (int round = 1; round < BERTH_LANES; round *= 2) {
        berth_vec next[BERTH_LANES];
        BERTH_UNROLL
        for (int i = 0; i < BERTH_LANES / 2; ++i) {
            next[2 * i] = berth_vec_low(rows[i], rows[i + BERTH_LANES / 2]);
            next[2 * i + 1] = berth_vec_high(rows[i], rows[i + BERTH_LANES / 2]);
        }
        BERTH_UNROLL
        for (int i = 0; i < BERTH_LANES; ++i) {
            rows[i] = next[i];
        }
    }
}

// Lane i gets what lane i + by had, round the end.
BERTH_INLINE berth_vec berth_vec_down(berth_vec a, int by) {
    const berth_vec_ints lanes = {BERTH_LANE_NUMBERS};
    return __builtin_shuffle(a, (lanes + by) & (BERTH_LANES - 1));
}

// The sum and the largest of the lanes.
BERTH_INLINE float berth_vec_sum(berth_vec a) {
    BERTH_UNROLL
    for (int half = BERTH_LANES / 2; half > 0; half /= 2) {
        a = a + berth_vec_down(a, half);
    }
    return a[0];
}

BERTH_INLINE float berth_vec_largest(berth_vec a) {
    BERTH_UNROLL
    for (int half = BERTH_LANES / 2; half > 0; half /= 2) {
        a = berth_vec_max(a, berth_vec_down(a, half));
    }
    return a[0];
}

// Elements [first, first + BERTH_LANES) of a row.
BERTH_INLINE berth_vec berth_vec_load_as(const void *row, berth_dtype dtype, int64_t first) {
    return dtype == BERTH_DTYPE_F32    ? berth_vec_load((const float *)row + first)
           : dtype == BERTH_DTYPE_BF16 ? berth_vec_load_bf16((const uint16_t *)row + first)
                                       : berth_vec_load_f16((const uint16_t *)row + first);
}

BERTH_INLINE void berth_vec_store_as(void *row, berth_dtype dtype, int64_t first, berth_vec a) {
    if (dtype == BERTH_DTYPE_F32) {
        berth_vec_store((float *)row + first, a);
    } else if (dtype == BERTH_DTYPE_BF16) {
        berth_vec_store_bf16((uint16_t *)row + first, a);
    } else {
        berth_vec_store_f16((uint16_t *)row + first, a);
    }
}

// `count` elements, at most BERTH_LANES; the other lanes are zero.
BERTH_SELDOM berth_vec berth_vec_load_part(const void *row, berth_dtype dtype, int64_t first,
                                           int64_t count) {
    float lanes[BERTH_LANES] = {0};
    berth_load(row, dtype, first, count, lanes);
    return berth_vec_load(lanes);
}

BERTH_SELDOM void berth_vec_store_part(void *row, berth_dtype dtype, int64_t first, int64_t count,
                                       berth_vec a) {
    for (int64_t lane = 0; lane < count; ++lane) {
        berth_store_at(row, dtype, first + lane, a[lane]);
    }
}

// Elements [first, first + BERTH_LANES) of a row that ends at `end`; lanes behind it are zero, and
// not stored.
BERTH_INLINE berth_vec berth_vec_load_some(const void *row, berth_dtype dtype, int64_t first,
                                           int64_t end) {
    const int64_t count = end - first;
    return count >= BERTH_LANES ? berth_vec_load_as(row, dtype, first)
           : count > 0          ? berth_vec_load_part(row, dtype, first, count)
                                : berth_vec_of(0);
}

BERTH_INLINE void berth_vec_store_some(void *row, berth_dtype dtype, int64_t first, int64_t end,
                                       berth_vec a) {
    if (end - first >= BERTH_LANES) {
        berth_vec_store_as(row, dtype, first, a);
    } else {
        berth_vec_store_part(row, dtype, first, end - first, a);
    }
}

// The value that a store of that dtype would keep.
BERTH_INLINE berth_vec berth_vec_round_to(berth_dtype dtype, berth_vec a) {
    uint16_t halves[BERTH_LANES];
    if (dtype == BERTH_DTYPE_BF16) {
        berth_vec_store_bf16(halves, a);
        return berth_vec_load_bf16(halves);
    }
    if (dtype == BERTH_DTYPE_F16) {
        berth_vec_store_f16(halves, a);
        return berth_vec_load_f16(halves);
    }
    return a;
}

// e^x within 2 units in the last place; subnormal results, infinities and NaN as expf gives them.
BERTH_INLINE berth_vec berth_vec_exp(berth_vec x) {
    // x = n·ln 2 + r with |r| ≤ ln 2 / 2; adding 1.5·2^23 rounds to the integer n in the low bits.
    const berth_vec magic = berth_vec_of(0x1.8p+23f);
    const berth_vec shifted = berth_vec_fma(x, berth_vec_of(0x1.715476p+0f), magic);
    const berth_vec_ints n = (berth_vec_ints)((berth_vec_bits)shifted - (berth_vec_bits)magic);
    const berth_vec whole = shifted - magic;
    // ln 2 in two parts: the product with the first is exact.
    berth_vec r = berth_vec_fma(whole, berth_vec_of(-0x1.62e4p-1f), x);
    r = berth_vec_fma(whole, berth_vec_of(-0x1.7f7d1cp-20f), r);
    berth_vec sum = berth_vec_of(1.0f / 5040);
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f / 720));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f / 120));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f / 24));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f / 6));
    sum = berth_vec_fma(sum, r, berth_vec_of(0.5f));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f));
    sum = berth_vec_fma(sum, r, berth_vec_of(1.0f));
    // 2^n in two factors, so that each is a normal number for subnormal results too.
    const berth_vec_ints half = n >> 1;
    const berth_vec first = (berth_vec)((berth_vec_bits)(half + 127) << 23);
    const berth_vec second = (berth_vec)((berth_vec_bits)(n - half + 127) << 23);
    const berth_vec_bits value = (berth_vec_bits)(sum * first * second);
    const berth_vec_bits is_small = (berth_vec_bits)(x < -104.0f);
    const berth_vec_bits is_large = (berth_vec_bits)(x > 89.0f);
    return (berth_vec)((value & ~is_small & ~is_large) | (is_large & 0x7f800000u));
}

#endif
