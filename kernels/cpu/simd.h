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

#include <cpu/inline.h>
#include <tensor.h>

// What goes with berth_vec: its bits, and as many numbers of other widths.
#define BERTH_VEC_TYPES                                                                            \
    typedef uint32_t berth_vec_bits __attribute__((vector_size(BERTH_LANES * 4)));                 \
    typedef int32_t berth_vec_ints __attribute__((vector_size(BERTH_LANES * 4)));                  \
    typedef uint16_t berth_vec_halves __attribute__((vector_size(BERTH_LANES * 2)));               \
    typedef uint16_t berth_vec_words __attribute__((vector_size(BERTH_LANES * 4)));                \
    typedef uint8_t berth_vec_bytes __attribute__((vector_size(BERTH_LANES)));

// The words that are not operators, in every set:
//   min, max        the second where one is NaN
//   bound           `limit`, which is above 0, with the sign of a where a is larger or NaN
//   larger          the larger of two integers
//   if_less         the third where the first is below the second, else the fourth
//   add_product     sum + a · b, for tiles: the sum stays in its register
//   rest            a less the nearest whole number; of infinities 0
//   scale           a · 2^power, a whole number; subnormal, 0 and infinite where that is right
//   reciprocal      within 2 units in the last place
//   divide          a / b by 1 / b, which is rounded; right where neither of the three is subnormal
//                   or infinite, and the quotient above 2^-90
//   estimate        the same within 2^-14
//   part            a less the largest whole number that is not above it; of infinities 0
//   raise           a · 2^(power − part), part being that of the power
//   widen, narrow   numbers of 16 bits as ones of 32, and their lower halves; _twice: bytes
//   pack            of four vectors of numbers below 256, joined two by two, the bytes in order:
//                   pack(join(a, b), join(c, d)); join takes numbers below 2^16, whose order is its
//                   own; join_lower, join_upper: the halves of any numbers in that order
//   turn_lower, turn_upper   the halves of two vectors by turns; pack_turns: the bytes of two of
//                   these, below 256, in order
//   smaller, larger_words    of two words
//   all_less        whether every lane is below the other's
//   power           the power of two with which a begins, at least `least`, a's sign with it; a is
//                   finite
//   round_bf16      the upper half of the result is the bf16 that berth_to_bf16 makes
//   to_f16          as berth_to_f16 does
//   join_bf16       two vectors, rounded so, one behind the other, but that a subnormal number
//                   becomes 0. mix: the halves of such a vector by turns
//   has_subnormal   whether one of two vectors has such a number
//   low, high       the lower, the upper halves of two by turns; even, odd: every second lane of
//                   two, which takes them apart again
//   table           the number of a table of BERTH_TABLE that the lowest bits of each lane name;
//                   fast where BERTH_HAS_TABLE
//   not_at_most     bits: the lanes that are above the other's, or NaN
//   pack_lanes      stores lanes, bits, one behind the other, and anything behind them, a vector at
//                   most; spread_lanes: takes them apart again, 0 in the other lanes
//   pack_above      the same of signed words above the other's, returns their bits; spread_words
//   dot_words       sum + the products of both pairs of signed 16 bits of each lane
//   dot_bytes       sum + the four products of unsigned bytes by signed ones of each lane
//   add_down, add_up   the sum, rounded down and up
//   larger_bytes    of two bytes; if_bytes: the second's where the first's are not 0, else 0
//   are_bytes       whether all bytes of two are the same
//   pick_bytes      of the bytes of two vectors, one behind the other, those that the lowest bits
//                   of each byte of a third one name
//
// dot, dot_bytes, pick_bytes and pack_above, with spread_words, are for machines that
// berth_vec_has_… them, join_bf16 for those with dot, add_down, add_up, larger_bytes, if_bytes and
// are_bytes for those with pick_bytes; not_at_most, …_lanes for sets with BERTH_HAS_TABLE.
//
//   store_past      past the caches, to an address of the vector's own alignment; a part of a
//                   kernel ends with berth_past_end, which orders these stores before what follows

#define BERTH_TABLE 32

// ---- what differs -------------------------------------------------------------------------------

// BERTH_TILE_ROWS is the largest number of rows of two vectors whose sums fit in the registers.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include <immintrin.h>

#define BERTH_LANES           16
#define BERTH_HAS_TABLE       1
#define BERTH_TILE_ROWS       12
#define BERTH_TILE_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

typedef __m512 berth_vec;
BERTH_VEC_TYPES

BERTH_INLINE berth_vec berth_vec_of(float value) {
    return _mm512_set1_ps(value);
}

BERTH_INLINE berth_vec berth_vec_max(berth_vec a, berth_vec b) {
    return _mm512_max_ps(a, b);
}

BERTH_INLINE berth_vec berth_vec_min(berth_vec a, berth_vec b) {
    return _mm512_min_ps(a, b);
}

BERTH_INLINE berth_vec berth_vec_bound(berth_vec a, berth_vec limit) {
    enum { NEARER_TO_0_WITH_SIGN_OF_FIRST = 2 };
    return _mm512_range_ps(a, limit, NEARER_TO_0_WITH_SIGN_OF_FIRST);
}

BERTH_INLINE berth_vec berth_vec_fma(berth_vec a, berth_vec b, berth_vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
#define berth_vec_add_product(sum, a, b) berth_vec_fma(a, b, sum)

BERTH_INLINE berth_vec_ints berth_vec_larger(berth_vec_ints a, berth_vec_ints b) {
    return (berth_vec_ints)_mm512_max_epi32((__m512i)a, (__m512i)b);
}

BERTH_INLINE berth_vec berth_vec_if_less(berth_vec a, berth_vec b, berth_vec yes, berth_vec no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

BERTH_INLINE berth_vec berth_vec_rest(berth_vec a) {
    return _mm512_reduce_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

BERTH_INLINE berth_vec berth_vec_scale(berth_vec a, berth_vec power) {
    return _mm512_scalef_ps(a, power);
}

// One step beyond the product with the rounded reciprocal is the rounded quotient (Markstein 1990).
BERTH_INLINE berth_vec berth_vec_divide(berth_vec a, berth_vec b, berth_vec one_over_b) {
    const berth_vec quotient = a * one_over_b;
    const berth_vec rest = _mm512_fnmadd_ps(quotient, b, a);
    return _mm512_fmadd_ps(rest, one_over_b, quotient);
}

// One step of Newton's method. Where it has no value, the estimate is 0 or infinite, and right.
BERTH_INLINE berth_vec berth_vec_reciprocal(berth_vec a) {
    const berth_vec estimate = _mm512_rcp14_ps(a);
    const berth_vec error = _mm512_fnmadd_ps(a, estimate, _mm512_set1_ps(1));
    const __mmask16 has_value = _mm512_cmp_ps_mask(error, error, _CMP_ORD_Q);
    return _mm512_mask_fmadd_ps(estimate, has_value, error, estimate);
}

BERTH_INLINE berth_vec berth_vec_estimate(berth_vec a) {
    return _mm512_rcp14_ps(a);
}

BERTH_INLINE berth_vec berth_vec_part(berth_vec a) {
    return _mm512_reduce_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

// The instruction takes the floor of the power.
BERTH_INLINE berth_vec berth_vec_raise(berth_vec a, berth_vec power, berth_vec part) {
    (void)part;
    return _mm512_scalef_ps(a, power);
}

BERTH_INLINE berth_vec_bits berth_vec_widen(berth_vec_halves a) {
    return (berth_vec_bits)_mm512_cvtepu16_epi32((__m256i)a);
}

BERTH_INLINE berth_vec_halves berth_vec_narrow(berth_vec_bits a) {
    return (berth_vec_halves)_mm512_cvtepi32_epi16((__m512i)a);
}

BERTH_INLINE berth_vec_bits berth_vec_widen_twice(berth_vec_bytes a) {
    return (berth_vec_bits)_mm512_cvtepu8_epi32((__m128i)a);
}

BERTH_INLINE berth_vec_bytes berth_vec_narrow_twice(berth_vec_bits a) {
    return (berth_vec_bytes)_mm512_cvtepi32_epi8((__m512i)a);
}

BERTH_INLINE berth_vec_words berth_vec_join(berth_vec_bits a, berth_vec_bits b) {
    return (berth_vec_words)_mm512_packus_epi32((__m512i)a, (__m512i)b);
}

// Why permutations, here and of turns: one step, where shifts and masks are three.
BERTH_INLINE berth_vec_words berth_vec_join_lower(berth_vec_bits a, berth_vec_bits b) {
    return __builtin_shufflevector((berth_vec_words)a, (berth_vec_words)b, 0, 2, 4, 6, 32, 34, 36,
                                   38, 8, 10, 12, 14, 40, 42, 44, 46, 16, 18, 20, 22, 48, 50, 52,
                                   54, 24, 26, 28, 30, 56, 58, 60, 62);
}

BERTH_INLINE berth_vec_words berth_vec_join_upper(berth_vec_bits a, berth_vec_bits b) {
    return __builtin_shufflevector((berth_vec_words)a, (berth_vec_words)b, 1, 3, 5, 7, 33, 35, 37,
                                   39, 9, 11, 13, 15, 41, 43, 45, 47, 17, 19, 21, 23, 49, 51, 53,
                                   55, 25, 27, 29, 31, 57, 59, 61, 63);
}

BERTH_INLINE berth_vec_words berth_vec_turn_lower(berth_vec_bits even, berth_vec_bits odd) {
    return __builtin_shufflevector((berth_vec_words)even, (berth_vec_words)odd, 0, 32, 2, 34, 4, 36,
                                   6, 38, 8, 40, 10, 42, 12, 44, 14, 46, 16, 48, 18, 50, 20, 52, 22,
                                   54, 24, 56, 26, 58, 28, 60, 30, 62);
}

BERTH_INLINE berth_vec_words berth_vec_turn_upper(berth_vec_bits even, berth_vec_bits odd) {
    return __builtin_shufflevector((berth_vec_words)even, (berth_vec_words)odd, 1, 33, 3, 35, 5, 37,
                                   7, 39, 9, 41, 11, 43, 13, 45, 15, 47, 17, 49, 19, 51, 21, 53, 23,
                                   55, 25, 57, 27, 59, 29, 61, 31, 63);
}

BERTH_INLINE berth_vec_bits berth_vec_pack_turns(berth_vec_words ab, berth_vec_words cd) {
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return (berth_vec_bits)_mm512_permutexvar_epi64(order,
                                                    _mm512_packus_epi16((__m512i)ab, (__m512i)cd));
}

BERTH_INLINE berth_vec_words berth_vec_smaller(berth_vec_words a, berth_vec_words b) {
    return (berth_vec_words)_mm512_min_epu16((__m512i)a, (__m512i)b);
}

BERTH_INLINE berth_vec_words berth_vec_larger_words(berth_vec_words a, berth_vec_words b) {
    return (berth_vec_words)_mm512_max_epu16((__m512i)a, (__m512i)b);
}

BERTH_INLINE berth_vec_bits berth_vec_pack(berth_vec_words ab, berth_vec_words cd) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i packed = _mm512_packus_epi16((__m512i)ab, (__m512i)cd);
    return (berth_vec_bits)_mm512_permutexvar_epi32(order, packed);
}

BERTH_INLINE berth_vec berth_vec_power(berth_vec a, float least) {
    const __m512i power = _mm512_and_si512((__m512i)a, _mm512_set1_epi32((int)0xff800000u));
    return _mm512_range_ps((berth_vec)power, _mm512_set1_ps(least), 3); // |a| or |b|, a's sign
}

BERTH_INLINE berth_vec_bits berth_vec_round_bf16(berth_vec a) {
    const __m512i bits = (__m512i)a;
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return (berth_vec_bits)_mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
}

BERTH_INLINE berth_vec berth_vec_table(const float *numbers, berth_vec_bits indices) {
    return _mm512_permutex2var_ps(_mm512_loadu_ps(numbers), (__m512i)indices,
                                  _mm512_loadu_ps(numbers + BERTH_LANES));
}

BERTH_INLINE void berth_vec_store_past(void *to, berth_vec a) {
    _mm512_stream_ps(to, a);
}

BERTH_INLINE void berth_vec_store_halves_past(void *to, berth_vec_halves a) {
    _mm256_stream_si256(to, (__m256i)a);
}

BERTH_INLINE berth_vec berth_vec_load_f16(const uint16_t *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

BERTH_INLINE berth_vec_halves berth_vec_to_f16(berth_vec a) {
    return (berth_vec_halves)_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
}

// Why not the intrinsic: all that it is inlined into would have to be compiled for BF16.
BERTH_INLINE berth_vec berth_vec_dot(berth_vec sum, berth_vec a, berth_vec b) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

BERTH_INLINE int berth_vec_has_dot(void) {
    return __builtin_cpu_supports("avx512bf16") != 0;
}

BERTH_INLINE berth_vec_bits berth_vec_dot_words(berth_vec_bits sum, berth_vec_bits a,
                                                berth_vec_bits b) {
    return sum + (berth_vec_bits)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}

BERTH_INLINE berth_vec_bits berth_vec_dot_bytes(berth_vec_bits sum, berth_vec_bits a,
                                                berth_vec_bits b) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

BERTH_INLINE int berth_vec_has_dot_bytes(void) {
    return __builtin_cpu_supports("avx512vnni") != 0;
}

BERTH_INLINE berth_vec_bits berth_vec_pick_bytes(berth_vec_bits a, berth_vec_bits b,
                                                 berth_vec_bits indices) {
    __asm__("vpermi2b %2, %1, %0" : "+v"(indices) : "v"(a), "v"(b));
    return indices;
}

BERTH_INLINE int berth_vec_has_pick_bytes(void) {
    return __builtin_cpu_supports("avx512vbmi") != 0;
}

BERTH_INLINE berth_vec_bits berth_vec_larger_bytes(berth_vec_bits a, berth_vec_bits b) {
    return (berth_vec_bits)_mm512_max_epu8((__m512i)a, (__m512i)b);
}

BERTH_INLINE berth_vec_bits berth_vec_if_bytes(berth_vec_bits a, berth_vec_bits b) {
    const __mmask64 is_not_zero = _mm512_test_epi8_mask((__m512i)a, (__m512i)a);
    return (berth_vec_bits)_mm512_maskz_mov_epi8(is_not_zero, (__m512i)b);
}

BERTH_INLINE int berth_vec_are_bytes(berth_vec_bits a, berth_vec_bits b) {
    return _mm512_cmpneq_epi32_mask((__m512i)a, (__m512i)b) == 0;
}

BERTH_INLINE berth_vec berth_vec_add_down(berth_vec a, berth_vec b) {
    return _mm512_add_round_ps(a, b, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

BERTH_INLINE berth_vec berth_vec_add_up(berth_vec a, berth_vec b) {
    return _mm512_add_round_ps(a, b, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

BERTH_INLINE uint32_t berth_vec_not_at_most(berth_vec a, berth_vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ);
}

// Why not the instruction that stores: on some machines it takes a hundred steps.
BERTH_INLINE void berth_vec_pack_lanes(float *to, uint32_t lanes, berth_vec a) {
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps((__mmask16)lanes, a));
}

BERTH_INLINE berth_vec berth_vec_spread_lanes(const float *from, uint32_t lanes) {
    return _mm512_maskz_expand_ps((__mmask16)lanes, _mm512_loadu_ps(from));
}

// Few words as a quarter of a vector: they begin anywhere, and a whole one then is in two lines.
BERTH_INLINE uint32_t berth_vec_pack_above(void *to, berth_vec a, berth_vec b) {
    const __mmask32 words = _mm512_cmpgt_epi16_mask((__m512i)a, (__m512i)b);
    __asm__("vpcompressw %1, %0%{%2%}%{z%}" : "=v"(b) : "v"(a), "Yk"(words));
    if (__builtin_popcount(words) > 8) {
        _mm512_storeu_ps(to, b);
    } else {
        _mm_storeu_ps(to, _mm512_castps512_ps128(b));
    }
    return words;
}

BERTH_INLINE berth_vec berth_vec_spread_words(const void *from, uint32_t words) {
    berth_vec a = __builtin_popcount(words) > 8 ? _mm512_loadu_ps(from)
                                                : _mm512_zextps128_ps512(_mm_loadu_ps(from));
    __asm__("vpexpandw %1, %0%{%2%}%{z%}" : "=v"(a) : "v"(a), "Yk"((__mmask32)words));
    return a;
}

BERTH_INLINE int berth_vec_has_pack_above(void) {
    return __builtin_cpu_supports("avx512vbmi2") != 0;
}

BERTH_INLINE int berth_vec_all_less(berth_vec a, berth_vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) == 0xffff;
}

BERTH_INLINE int berth_vec_has_subnormal(berth_vec a, berth_vec b) {
    enum { SUBNORMAL = 0x20 };
    return !_kortestz_mask16_u8(_mm512_fpclass_ps_mask(a, SUBNORMAL),
                                _mm512_fpclass_ps_mask(b, SUBNORMAL));
}

BERTH_INLINE berth_vec berth_vec_join_bf16(berth_vec first, berth_vec second) {
    berth_vec both;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(first), "v"(second));
    return both;
}

BERTH_INLINE berth_vec berth_vec_mix(berth_vec a) {
    const __m512i low = _mm512_cvtepu16_epi32(
        _mm256_set_epi16(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    const __m512i turns = _mm512_or_si512(
        low, _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(BERTH_LANES)), 16));
    return (berth_vec)_mm512_permutexvar_epi16(turns, (__m512i)a);
}

BERTH_INLINE berth_vec berth_vec_low(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

BERTH_INLINE berth_vec berth_vec_high(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

BERTH_INLINE berth_vec berth_vec_even(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

BERTH_INLINE berth_vec berth_vec_odd(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#define BERTH_LANES           8
#define BERTH_TILE_ROWS       6
#define BERTH_TILE_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef __m256 berth_vec;
BERTH_VEC_TYPES

BERTH_INLINE berth_vec berth_vec_of(float value) {
    return _mm256_set1_ps(value);
}

BERTH_INLINE berth_vec berth_vec_max(berth_vec a, berth_vec b) {
    return _mm256_max_ps(a, b);
}

BERTH_INLINE berth_vec berth_vec_min(berth_vec a, berth_vec b) {
    return _mm256_min_ps(a, b);
}

BERTH_INLINE berth_vec berth_vec_fma(berth_vec a, berth_vec b, berth_vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

// Why not the intrinsic: gcc lets sums move from register to register, and of a tile's twelve one
// goes through memory. A product of 512 rows has 38 GFLOP/s so, and 75 by this (a peak of 91).
BERTH_INLINE berth_vec berth_vec_add_product(berth_vec sum, berth_vec a, berth_vec b) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}

// One step beyond the product with the rounded reciprocal is the rounded quotient (Markstein 1990).
BERTH_INLINE berth_vec berth_vec_divide(berth_vec a, berth_vec b, berth_vec one_over_b) {
    const berth_vec quotient = a * one_over_b;
    const berth_vec rest = _mm256_fnmadd_ps(quotient, b, a);
    return _mm256_fmadd_ps(rest, one_over_b, quotient);
}

BERTH_INLINE berth_vec_bits berth_vec_widen(berth_vec_halves a) {
    return (berth_vec_bits)_mm256_cvtepu16_epi32((__m128i)a);
}

BERTH_INLINE berth_vec_halves berth_vec_narrow(berth_vec_bits a) {
    const __m256i low = _mm256_blend_epi16((__m256i)a, _mm256_setzero_si256(), 0xaa);
    const __m256i packed = _mm256_packus_epi32(low, low);
    return (berth_vec_halves)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 8));
}

BERTH_INLINE berth_vec_bits berth_vec_widen_twice(berth_vec_bytes a) {
    return (berth_vec_bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)&a));
}

BERTH_INLINE berth_vec_bytes berth_vec_narrow_twice(berth_vec_bits a) {
    const __m128i halves = (__m128i)berth_vec_narrow(a & 0xffu);
    const __m128i packed = _mm_packus_epi16(halves, halves);
    berth_vec_bytes bytes;
    memcpy(&bytes, &packed, sizeof bytes);
    return bytes;
}

BERTH_INLINE berth_vec_words berth_vec_join(berth_vec_bits a, berth_vec_bits b) {
    return (berth_vec_words)_mm256_packus_epi32((__m256i)a, (__m256i)b);
}

BERTH_INLINE berth_vec_words berth_vec_join_lower(berth_vec_bits a, berth_vec_bits b) {
    return berth_vec_join(a & 0xffffu, b & 0xffffu);
}

BERTH_INLINE berth_vec_words berth_vec_join_upper(berth_vec_bits a, berth_vec_bits b) {
    return berth_vec_join(a >> 16, b >> 16);
}

BERTH_INLINE berth_vec_words berth_vec_turn_lower(berth_vec_bits even, berth_vec_bits odd) {
    return (berth_vec_words)_mm256_blend_epi16((__m256i)even, (__m256i)(odd << 16), 0xaa);
}

BERTH_INLINE berth_vec_words berth_vec_turn_upper(berth_vec_bits even, berth_vec_bits odd) {
    return (berth_vec_words)_mm256_blend_epi16((__m256i)(even >> 16), (__m256i)odd, 0xaa);
}

BERTH_INLINE berth_vec_bits berth_vec_pack_turns(berth_vec_words ab, berth_vec_words cd) {
    return (berth_vec_bits)_mm256_permute4x64_epi64(_mm256_packus_epi16((__m256i)ab, (__m256i)cd),
                                                    0xd8);
}

BERTH_INLINE berth_vec_words berth_vec_smaller(berth_vec_words a, berth_vec_words b) {
    return (berth_vec_words)_mm256_min_epu16((__m256i)a, (__m256i)b);
}

BERTH_INLINE berth_vec_words berth_vec_larger_words(berth_vec_words a, berth_vec_words b) {
    return (berth_vec_words)_mm256_max_epu16((__m256i)a, (__m256i)b);
}

BERTH_INLINE berth_vec_bits berth_vec_pack(berth_vec_words ab, berth_vec_words cd) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i packed = _mm256_packus_epi16((__m256i)ab, (__m256i)cd);
    return (berth_vec_bits)_mm256_permutevar8x32_epi32(packed, order);
}

BERTH_INLINE void berth_vec_store_past(void *to, berth_vec a) {
    _mm256_stream_ps(to, a);
}

BERTH_INLINE void berth_vec_store_halves_past(void *to, berth_vec_halves a) {
    _mm_stream_si128(to, (__m128i)a);
}

BERTH_INLINE berth_vec berth_vec_load_f16(const uint16_t *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

BERTH_INLINE berth_vec_halves berth_vec_to_f16(berth_vec a) {
    return (berth_vec_halves)_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
}

BERTH_INLINE berth_vec_bits berth_vec_dot_words(berth_vec_bits sum, berth_vec_bits a,
                                                berth_vec_bits b) {
    return sum + (berth_vec_bits)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}

BERTH_INLINE berth_vec berth_vec_low(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

BERTH_INLINE berth_vec berth_vec_high(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

BERTH_INLINE berth_vec berth_vec_even(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
}

BERTH_INLINE berth_vec berth_vec_odd(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}

#else

#define BERTH_LANES                      4
#define BERTH_TILE_ROWS                  6
#define BERTH_TILE_HEIGHTS(X)            X(1) X(2) X(3) X(4) X(5) X(6)

typedef float berth_vec __attribute__((vector_size(16)));
BERTH_VEC_TYPES

BERTH_INLINE berth_vec berth_vec_of(float value) {
    return (berth_vec){value, value, value, value};
}

BERTH_INLINE berth_vec berth_vec_max(berth_vec a, berth_vec b) {
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        a[lane] = a[lane] > b[lane] ? a[lane] : b[lane];
    }
    return a;
}

BERTH_INLINE berth_vec berth_vec_min(berth_vec a, berth_vec b) {
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        a[lane] = a[lane] < b[lane] ? a[lane] : b[lane];
    }
    return a;
}

BERTH_INLINE berth_vec berth_vec_fma(berth_vec a, berth_vec b, berth_vec c) {
    return a * b + c;
}
#define berth_vec_add_product(sum, a, b) berth_vec_fma(a, b, sum)

BERTH_INLINE berth_vec berth_vec_divide(berth_vec a, berth_vec b, berth_vec one_over_b) {
    (void)one_over_b;
    return a / b;
}

BERTH_INLINE berth_vec_bits berth_vec_widen(berth_vec_halves a) {
    return __builtin_convertvector(a, berth_vec_bits);
}

BERTH_INLINE berth_vec_halves berth_vec_narrow(berth_vec_bits a) {
    return __builtin_convertvector(a, berth_vec_halves);
}

BERTH_INLINE berth_vec_bits berth_vec_widen_twice(berth_vec_bytes a) {
    return __builtin_convertvector(a, berth_vec_bits);
}

BERTH_INLINE berth_vec_bytes berth_vec_narrow_twice(berth_vec_bits a) {
    return __builtin_convertvector(a, berth_vec_bytes);
}

BERTH_INLINE berth_vec_words berth_vec_join(berth_vec_bits a, berth_vec_bits b) {
    return __builtin_shufflevector((berth_vec_words)a, (berth_vec_words)b, 0, 2, 4, 6, 8, 10, 12,
                                   14);
}

BERTH_INLINE berth_vec_words berth_vec_join_lower(berth_vec_bits a, berth_vec_bits b) {
    return berth_vec_join(a, b);
}

BERTH_INLINE berth_vec_words berth_vec_join_upper(berth_vec_bits a, berth_vec_bits b) {
    return berth_vec_join(a >> 16, b >> 16);
}

BERTH_INLINE berth_vec_words berth_vec_turn_lower(berth_vec_bits even, berth_vec_bits odd) {
    return (berth_vec_words)((even & 0xffffu) | odd << 16);
}

BERTH_INLINE berth_vec_words berth_vec_turn_upper(berth_vec_bits even, berth_vec_bits odd) {
    return (berth_vec_words)(even >> 16 | (odd & 0xffff0000u));
}

BERTH_INLINE berth_vec_words berth_vec_smaller(berth_vec_words a, berth_vec_words b) {
    const berth_vec_words is_smaller = (berth_vec_words)(a < b);
    return (a & is_smaller) | (b & ~is_smaller);
}

BERTH_INLINE berth_vec_words berth_vec_larger_words(berth_vec_words a, berth_vec_words b) {
    const berth_vec_words is_larger = (berth_vec_words)(a > b);
    return (a & is_larger) | (b & ~is_larger);
}

BERTH_INLINE berth_vec_bits berth_vec_pack(berth_vec_words ab, berth_vec_words cd) {
    typedef uint8_t bytes __attribute__((vector_size(BERTH_LANES * 4)));
    return (berth_vec_bits)__builtin_shufflevector((bytes)ab, (bytes)cd, 0, 2, 4, 6, 8, 10, 12, 14,
                                                   16, 18, 20, 22, 24, 26, 28, 30);
}

BERTH_INLINE berth_vec_bits berth_vec_pack_turns(berth_vec_words ab, berth_vec_words cd) {
    return berth_vec_pack(ab, cd);
}

BERTH_INLINE void berth_vec_store_past(void *to, berth_vec a) {
    memcpy(to, &a, sizeof a);
}

BERTH_INLINE void berth_vec_store_halves_past(void *to, berth_vec_halves a) {
    memcpy(to, &a, sizeof a);
}

BERTH_INLINE berth_vec berth_vec_load_f16(const uint16_t *from) {
    return (berth_vec){berth_from_f16(from[0]), berth_from_f16(from[1]), berth_from_f16(from[2]),
                       berth_from_f16(from[3])};
}

BERTH_INLINE berth_vec_halves berth_vec_to_f16(berth_vec a) {
    berth_vec_halves halves;
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        halves[lane] = berth_to_f16(a[lane]);
    }
    return halves;
}

BERTH_INLINE berth_vec_bits berth_vec_dot_words(berth_vec_bits sum, berth_vec_bits a,
                                                berth_vec_bits b) {
    const berth_vec_ints low = ((berth_vec_ints)a << 16 >> 16) * ((berth_vec_ints)b << 16 >> 16);
    const berth_vec_ints high = ((berth_vec_ints)a >> 16) * ((berth_vec_ints)b >> 16);
    return sum + (berth_vec_bits)(low + high);
}

BERTH_INLINE berth_vec berth_vec_low(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}

BERTH_INLINE berth_vec berth_vec_high(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

BERTH_INLINE berth_vec berth_vec_even(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6);
}

BERTH_INLINE berth_vec berth_vec_odd(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7);
}

#endif

#if BERTH_LANES < 16
#define BERTH_HAS_TABLE 0

BERTH_INLINE berth_vec berth_vec_table(const float *numbers, berth_vec_bits indices) {
    berth_vec found;
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        found[lane] = numbers[indices[lane] % BERTH_TABLE];
    }
    return found;
}

BERTH_INLINE berth_vec_ints berth_vec_larger(berth_vec_ints a, berth_vec_ints b) {
    const berth_vec_ints is_larger = a > b;
    return (a & is_larger) | (b & ~is_larger);
}

BERTH_INLINE berth_vec berth_vec_power(berth_vec a, float least) {
    const berth_vec_ints power = (berth_vec_ints)a & 0x7f800000;
    const berth_vec_ints kept = berth_vec_larger(power, (berth_vec_ints)berth_vec_of(least));
    return (berth_vec)((berth_vec_bits)kept | ((berth_vec_bits)a & 0x80000000u));
}

BERTH_INLINE int berth_vec_all_less(berth_vec a, berth_vec b) {
    int are_less = 1;
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        are_less &= a[lane] < b[lane];
    }
    return are_less;
}

BERTH_INLINE berth_vec berth_vec_if_less(berth_vec a, berth_vec b, berth_vec yes, berth_vec no) {
    const berth_vec_bits is_less = (berth_vec_bits)(a < b);
    return (berth_vec)(((berth_vec_bits)yes & is_less) | ((berth_vec_bits)no & ~is_less));
}

BERTH_INLINE berth_vec berth_vec_rest(berth_vec a) {
    const berth_vec far = berth_vec_of(0x1p20f);
    const berth_vec magic = berth_vec_of(0x1.8p+23f); // the sum's last place is a 1
    const berth_vec near = berth_vec_max(-far, berth_vec_min(far, a));
    return near - ((near + magic) - magic);
}

// In two factors, so that each is a normal number for subnormal results too.
BERTH_INLINE berth_vec berth_vec_scale(berth_vec a, berth_vec power) {
    const berth_vec magic = berth_vec_of(0x1.8p+23f);
    const berth_vec some =
        berth_vec_max(berth_vec_of(-252), berth_vec_min(berth_vec_of(254), power));
    const berth_vec_ints n =
        (berth_vec_ints)((berth_vec_bits)(some + magic) - (berth_vec_bits)magic);
    const berth_vec_ints half = n >> 1;
    const berth_vec first = (berth_vec)((berth_vec_bits)(half + 127) << 23);
    const berth_vec second = (berth_vec)((berth_vec_bits)(n - half + 127) << 23);
    return a * first * second;
}

BERTH_INLINE berth_vec berth_vec_bound(berth_vec a, berth_vec limit) {
    return berth_vec_max(berth_vec_min(a, limit), -limit);
}

BERTH_INLINE berth_vec berth_vec_part(berth_vec a) {
    const berth_vec rest = berth_vec_rest(a);
    return rest + berth_vec_if_less(rest, berth_vec_of(0), berth_vec_of(1), berth_vec_of(0));
}

BERTH_INLINE berth_vec berth_vec_raise(berth_vec a, berth_vec power, berth_vec part) {
    return berth_vec_scale(a, power - part);
}

BERTH_INLINE berth_vec berth_vec_reciprocal(berth_vec a) {
    return berth_vec_of(1) / a;
}

BERTH_INLINE berth_vec berth_vec_estimate(berth_vec a) {
    return berth_vec_of(1) / a;
}

BERTH_INLINE berth_vec_bits berth_vec_round_bf16(berth_vec a) {
    const berth_vec_bits bits = (berth_vec_bits)a;
    const berth_vec same = a; // only a NaN differs from itself
    const berth_vec_bits is_nan = (berth_vec_bits)(a != same);
    const berth_vec_bits rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (rounded & ~is_nan) | ((bits | 0x400000u) & is_nan);
}

// sum += first · first + second · second of each pair of bf16. Only where berth_vec_has_dot holds.
#define berth_vec_dot(sum, a, b)            ((void)(a), (void)(b), (sum))
#define berth_vec_has_dot()                 0
#define berth_vec_dot_bytes(sum, a, b)      ((void)(a), (void)(b), (sum))
#define berth_vec_has_dot_bytes()           0
#define berth_vec_pick_bytes(a, b, indices) ((void)(a), (void)(b), (indices))
#define berth_vec_has_pick_bytes()          0
#define berth_vec_not_at_most(a, b)         ((void)(a), (void)(b), 0U)
#define berth_vec_pack_lanes(to, lanes, a)  ((void)(to), (void)(lanes), (void)(a))
#define berth_vec_spread_lanes(from, lanes) ((void)(from), (void)(lanes), berth_vec_of(0))
#define berth_vec_pack_above(to, a, b)      ((void)(to), (void)(a), (void)(b), 0U)
#define berth_vec_spread_words(from, words) ((void)(from), (void)(words), berth_vec_of(0))
#define berth_vec_has_pack_above()          0
#define berth_vec_larger_bytes(a, b)        ((void)(b), (a))
#define berth_vec_if_bytes(a, b)            ((void)(a), (b))
#define berth_vec_are_bytes(a, b)           ((void)(a), (void)(b), 0)
#define berth_vec_add_down(a, b)            ((a) + (b))
#define berth_vec_add_up(a, b)              ((a) + (b))
#define berth_vec_join_bf16(first, second)  ((void)(second), (first))
#define berth_vec_has_subnormal(a, b)       ((void)(a), (void)(b), 0)
#define berth_vec_mix(a)                    (a)
#endif

// Whether this machine runs what is compiled for a set (all that have AVX2 have F16C, too).
#if defined(__x86_64__)
#define BERTH_MACHINE_HAS(feature) (__builtin_cpu_supports(feature) != 0)
#define BERTH_PAUSE()              __builtin_ia32_pause()
#define berth_past_end()           __builtin_ia32_sfence()
#else
#define BERTH_MACHINE_HAS(feature) 0
#define BERTH_PAUSE()              ((void)0)
#define berth_past_end()           ((void)0)
#endif
#define BERTH_MACHINE_HAS_AVX2 (BERTH_MACHINE_HAS("avx2") && BERTH_MACHINE_HAS("fma"))
#define BERTH_MACHINE_HAS_AVX512                                                                   \
    (BERTH_MACHINE_HAS_AVX2 && BERTH_MACHINE_HAS("avx512f") && BERTH_MACHINE_HAS("avx512bw") &&    \
     BERTH_MACHINE_HAS("avx512dq") && BERTH_MACHINE_HAS("avx512vl"))

#include <cpu/vec.h> // what every set has

#endif
