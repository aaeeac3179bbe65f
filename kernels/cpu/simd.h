// SPDX-License-Identifier: Apache-2.0
// One vocabulary of float vectors for AVX-512 (F, BW, DQ, VL), AVX2 (with FMA and F16C) and
// portable C. The build compiles every file of this folder once per instruction set and gives its
// entry the suffix of the set; platform-cpu registers the entries of the best set that the machine
// has. So a kernel is written once, in these words or in plain loops, without a condition.
//
// How a kernel uses it: + - * / work on berth_vec as on floats; BERTH_LANES floats at a time with
// berth_vec_load … berth_vec_store; rows of any float dtype, up to their end, with the _some forms,
// whose dtype should be a constant where they are inlined. A sum that is kept per lane has the same
// order in every set. For threads see berth_cpu.run in cpu.h.
#ifndef BERTH_KERNELS_CPU_SIMD_H
#define BERTH_KERNELS_CPU_SIMD_H

#include <berth/types.h>

#include <tensor.h>

#define BERTH_INLINE static inline __attribute__((always_inline))

// For functions that hardly ever run: ends of rows.
#define BERTH_SELDOM static __attribute__((noinline, unused))

// Unrolls the loop that follows, whose bounds are constants: what it indexes stays in registers.
#define BERTH_UNROLL _Pragma("GCC unroll 16")

// Into the first cache, and into the second; the address need not be valid.
#define BERTH_PREFETCH(address)     __builtin_prefetch((address), 0, 3)
#define BERTH_PREFETCH_FAR(address) __builtin_prefetch((address), 0, 2)

// ---- what differs -------------------------------------------------------------------------------

// BERTH_TILE_ROWS is the largest number of rows of two vectors whose sums fit in the registers.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include <immintrin.h>

#define BERTH_LANES           16
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

#include <cpu/vec.h> // what every set has

#endif
