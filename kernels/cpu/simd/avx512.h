// SPDX-License-Identifier: Apache-2.0
// The words of simd.h in AVX-512 (F, BW, DQ, VL).
#ifndef BERTH_KERNELS_CPU_SIMD_AVX512_H
#define BERTH_KERNELS_CPU_SIMD_AVX512_H

#include <immintrin.h>

#include <cpu/simd/matrix.h>
#include <cpu/simd/types.h>

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

BERTH_INLINE berth_vec berth_vec_scale(berth_vec a, berth_vec power, berth_vec rest) {
    return _mm512_scalef_ps(a, power - rest);
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

BERTH_INLINE berth_vec berth_vec_pairs_of(berth_vec first, berth_vec second) {
    return (berth_vec)(berth_vec_round_bf16(first) >> 16 |
                       (berth_vec_round_bf16(second) & 0xffff0000u));
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

BERTH_INLINE berth_vec_words berth_vec_dot_pairs(berth_vec_bits a, berth_vec_bits b) {
    return (berth_vec_words)_mm512_maddubs_epi16((__m512i)a, (__m512i)b);
}

BERTH_INLINE berth_vec_bits berth_vec_dot_words(berth_vec_bits sum, berth_vec_bits a,
                                                berth_vec_bits b) {
    return sum + (berth_vec_bits)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}

// Of two vectors by one pair, in every lane.
BERTH_INLINE void berth_vec_dot_words_of_two(berth_vec sums[2], const berth_vec a[2],
                                             const float *pair) {
    const berth_vec_bits b = (berth_vec_bits)berth_vec_of(*pair);
    for (int i = 0; i < 2; ++i) {
        sums[i] = (berth_vec)berth_vec_dot_words((berth_vec_bits)sums[i], (berth_vec_bits)a[i], b);
    }
}

BERTH_INLINE berth_vec_bits berth_vec_dot_bytes(berth_vec_bits sum, berth_vec_bits a,
                                                berth_vec_bits b) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

BERTH_INLINE int berth_vec_has_dot_bytes(void) {
    return __builtin_cpu_supports("avx512vnni") != 0;
}

BERTH_INLINE berth_vec_bits berth_vec_pick_nibbles(berth_vec_bits table, berth_vec_bits indices) {
    return (berth_vec_bits)_mm512_shuffle_epi8((__m512i)table, (__m512i)indices);
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

#endif
