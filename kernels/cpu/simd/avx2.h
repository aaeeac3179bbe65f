// SPDX-License-Identifier: Apache-2.0
// The words of simd.h in AVX2, with FMA and F16C.
#ifndef BERTH_KERNELS_CPU_SIMD_AVX2_H
#define BERTH_KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>

#include <cpu/simd/narrow.h>
#include <cpu/simd/types.h>

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

BERTH_INLINE berth_vec berth_vec_bound(berth_vec a, berth_vec limit) {
    return berth_vec_max(berth_vec_min(a, limit), -limit);
}

BERTH_INLINE berth_vec_ints berth_vec_larger(berth_vec_ints a, berth_vec_ints b) {
    return (berth_vec_ints)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

BERTH_INLINE int berth_vec_all_less(berth_vec a, berth_vec b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)) == 0xff;
}

BERTH_INLINE berth_vec berth_vec_if_less(berth_vec a, berth_vec b, berth_vec yes, berth_vec no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
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

BERTH_INLINE berth_vec berth_vec_reciprocal(berth_vec a) {
    return _mm256_div_ps(berth_vec_of(1), a);
}

BERTH_INLINE berth_vec berth_vec_estimate(berth_vec a) {
    return _mm256_rcp_ps(a);
}

// Beside this number the last place is a 1, and the lowest bits are the sum's number, more by 254.
#define BERTH_VEC_BESIDE 0x1.8001fcp+23f

// Powers up to where any result is 0 or infinite. The rest of these, and what is scaled by them,
// are made of the same steps, which are done once where both are inlined.
BERTH_INLINE berth_vec berth_vec_some_power(berth_vec power) {
    return berth_vec_max(berth_vec_of(-252), berth_vec_min(berth_vec_of(254), power));
}

BERTH_INLINE berth_vec berth_vec_rest(berth_vec a) {
    const berth_vec some = berth_vec_some_power(a);
    const berth_vec beside = berth_vec_of(BERTH_VEC_BESIDE);
    return some - ((some + beside) - beside);
}

// In two factors, so that each is a normal number for subnormal results too: half of the lowest
// bits, and the other half, become exponents.
BERTH_INLINE berth_vec berth_vec_scale(berth_vec a, berth_vec power, berth_vec rest) {
    (void)rest;
    const berth_vec some = berth_vec_some_power(power);
    const berth_vec_bits sum = (berth_vec_bits)(some + berth_vec_of(BERTH_VEC_BESIDE));
    const berth_vec_bits half = sum >> 1;
    return a * (berth_vec)(half << 23) * (berth_vec)((sum - half) << 23);
}

// Of a part the powers are fewer: one factor is enough, from 0 to infinity.
BERTH_INLINE berth_vec berth_vec_normal_power(berth_vec power) {
    return berth_vec_max(berth_vec_of(-127), berth_vec_min(berth_vec_of(128), power));
}

BERTH_INLINE berth_vec berth_vec_part(berth_vec a) {
    const berth_vec normal = berth_vec_normal_power(a);
    return normal - _mm256_floor_ps(normal);
}

// The lowest bits of the sum, which are more by 127, are the exponent of that factor.
BERTH_INLINE berth_vec berth_vec_raise(berth_vec a, berth_vec power, berth_vec part) {
    (void)part;
    const berth_vec whole = _mm256_floor_ps(berth_vec_normal_power(power));
    return a * (berth_vec)((berth_vec_bits)(whole + berth_vec_of(0x1.8000fep+23f)) << 23);
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

BERTH_INLINE berth_vec_bits berth_vec_larger_bytes(berth_vec_bits a, berth_vec_bits b) {
    return (berth_vec_bits)_mm256_max_epu8((__m256i)a, (__m256i)b);
}

BERTH_INLINE berth_vec_bits berth_vec_pack(berth_vec_words ab, berth_vec_words cd) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i packed = _mm256_packus_epi16((__m256i)ab, (__m256i)cd);
    return (berth_vec_bits)_mm256_permutevar8x32_epi32(packed, order);
}

BERTH_INLINE berth_vec berth_vec_power(berth_vec a, float least) {
    const berth_vec_ints power = (berth_vec_ints)a & 0x7f800000;
    const berth_vec_ints kept = berth_vec_larger(power, (berth_vec_ints)berth_vec_of(least));
    return (berth_vec)((berth_vec_bits)kept | ((berth_vec_bits)a & 0x80000000u));
}

BERTH_INLINE berth_vec_bits berth_vec_round_bf16(berth_vec a) {
    const berth_vec_bits bits = (berth_vec_bits)a;
    const berth_vec_bits rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (berth_vec_bits)_mm256_blendv_ps((berth_vec)rounded, (berth_vec)(bits | 0x400000u),
                                            _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

// What is left of a number decides whether its upper half becomes one more: more than half of a
// last place, or half of one that is odd. A NaN, which that is not for, is seldom.
BERTH_INLINE berth_vec berth_vec_pairs_of(berth_vec first, berth_vec second) {
    const __m256i upper =
        (__m256i)berth_vec_turn_upper((berth_vec_bits)first, (berth_vec_bits)second);
    const __m256i lower =
        (__m256i)berth_vec_turn_lower((berth_vec_bits)first, (berth_vec_bits)second);
    const __m256i is_even = _mm256_andnot_si256(upper, _mm256_set1_epi16(1));
    const __m256i more = _mm256_srli_epi16(_mm256_subs_epu16(lower, is_even), 15);
    if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(first, second, _CMP_UNORD_Q)), 0)) {
        return (berth_vec)berth_vec_turn_upper(berth_vec_round_bf16(first),
                                               berth_vec_round_bf16(second));
    }
    return (berth_vec)_mm256_add_epi16(upper, more);
}

BERTH_INLINE berth_vec berth_vec_table(const float *numbers, berth_vec_bits indices) {
    return _mm256_i32gather_ps(numbers, (__m256i)(indices % BERTH_TABLE), sizeof(float));
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

BERTH_INLINE berth_vec_words berth_vec_dot_pairs(berth_vec_bits a, berth_vec_bits b) {
    return (berth_vec_words)_mm256_maddubs_epi16((__m256i)a, (__m256i)b);
}

BERTH_INLINE berth_vec_bits berth_vec_pick_nibbles(berth_vec_bits table, berth_vec_bits indices) {
    return (berth_vec_bits)_mm256_shuffle_epi8((__m256i)table, (__m256i)indices);
}

// As berth_vec_add_product.
BERTH_INLINE berth_vec_bits berth_vec_dot_words(berth_vec_bits sum, berth_vec_bits a,
                                                berth_vec_bits b) {
    const __m256i products = _mm256_madd_epi16((__m256i)a, (__m256i)b);
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
    return sum;
}

// Why in one piece: of a tile's sixteen registers none is left, and gcc keeps its sums in memory
// (512 rows: 100 GFLOP/s, in one piece 130). Both products before both sums: 10 % faster.
BERTH_INLINE void berth_vec_dot_words_of_two(berth_vec sums[2], const berth_vec a[2],
                                             const float *pair) {
    berth_vec first;
    berth_vec second;
    __asm__(
        "vpbroadcastd %[pair], %[second]\n\t"
        "vpmaddwd %[second], %[a], %[first]\n\t"
        "vpmaddwd %[second], %[b], %[second]\n\t"
        "vpaddd %[first], %[sum_a], %[sum_a]\n\t"
        "vpaddd %[second], %[sum_b], %[sum_b]"
        : [sum_a] "+x"(sums[0]), [sum_b] "+x"(sums[1]), [first] "=&x"(first), [second] "=&x"(second)
        : [a] "x"(a[0]), [b] "x"(a[1]), [pair] "m"(*pair));
}

BERTH_INLINE berth_vec berth_vec_low(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

BERTH_INLINE berth_vec berth_vec_high(berth_vec a, berth_vec b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Two lanes of a and two of b by turns become the four of a, then those of b. Why not named one by
// one, as above: gcc makes two permutations and a blend of what is one and a shuffle.
BERTH_INLINE berth_vec berth_vec_in_order(__m256 turns) {
    return (berth_vec)_mm256_permute4x64_pd((__m256d)turns, 0xd8);
}

BERTH_INLINE berth_vec berth_vec_even(berth_vec a, berth_vec b) {
    return berth_vec_in_order(_mm256_shuffle_ps(a, b, 0x88));
}

BERTH_INLINE berth_vec berth_vec_odd(berth_vec a, berth_vec b) {
    return berth_vec_in_order(_mm256_shuffle_ps(a, b, 0xdd));
}

#endif
