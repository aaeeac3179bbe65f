// SPDX-License-Identifier: Apache-2.0
// The words of simd.h in C, for vectors as every machine has them.
#ifndef BERTH_KERNELS_CPU_SIMD_PORTABLE_H
#define BERTH_KERNELS_CPU_SIMD_PORTABLE_H

#include <cpu/simd/narrow.h>
#include <cpu/simd/types.h>

#define BERTH_LANES           4
#define BERTH_TILE_ROWS       6
#define BERTH_TILE_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6)

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

BERTH_INLINE berth_vec_bits berth_vec_larger_bytes(berth_vec_bits a, berth_vec_bits b) {
    typedef uint8_t all_bytes __attribute__((vector_size(sizeof a)));
    const berth_vec_bits is_larger = (berth_vec_bits)((all_bytes)a > (all_bytes)b);
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

BERTH_INLINE berth_vec_words berth_vec_dot_pairs(berth_vec_bits a, berth_vec_bits b) {
    typedef int16_t signed_words __attribute__((vector_size(sizeof a)));
    const signed_words even =
        (signed_words)((berth_vec_words)a & 0xff) * ((signed_words)b << 8 >> 8);
    const signed_words odd = (signed_words)((berth_vec_words)a >> 8) * ((signed_words)b >> 8);
    return (berth_vec_words)(even + odd);
}

BERTH_INLINE berth_vec_bits berth_vec_pick_nibbles(berth_vec_bits table, berth_vec_bits indices) {
    typedef uint8_t bytes __attribute__((vector_size(sizeof table)));
    bytes picked = {0};
    for (int i = 0; i < 16; ++i) {
        picked |= (bytes)((bytes)indices == (uint8_t)i) & ((bytes)table)[i];
    }
    return (berth_vec_bits)picked;
}

BERTH_INLINE berth_vec_bits berth_vec_dot_words(berth_vec_bits sum, berth_vec_bits a,
                                                berth_vec_bits b) {
    const berth_vec_ints low = ((berth_vec_ints)a << 16 >> 16) * ((berth_vec_ints)b << 16 >> 16);
    const berth_vec_ints high = ((berth_vec_ints)a >> 16) * ((berth_vec_ints)b >> 16);
    return sum + (berth_vec_bits)(low + high);
}

// Of two vectors by one pair, in every lane.
BERTH_INLINE void berth_vec_dot_words_of_two(berth_vec sums[2], const berth_vec a[2],
                                             const float *pair) {
    const berth_vec_bits b = (berth_vec_bits)berth_vec_of(*pair);
    for (int i = 0; i < 2; ++i) {
        sums[i] = (berth_vec)berth_vec_dot_words((berth_vec_bits)sums[i], (berth_vec_bits)a[i], b);
    }
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
BERTH_INLINE berth_vec berth_vec_scale(berth_vec a, berth_vec power, berth_vec rest) {
    const berth_vec magic = berth_vec_of(0x1.8p+23f);
    const berth_vec some =
        berth_vec_max(berth_vec_of(-252), berth_vec_min(berth_vec_of(254), power - rest));
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
    return berth_vec_scale(a, power, part);
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

BERTH_INLINE berth_vec berth_vec_pairs_of(berth_vec first, berth_vec second) {
    return (berth_vec)(berth_vec_round_bf16(first) >> 16 |
                       (berth_vec_round_bf16(second) & 0xffff0000u));
}

#endif
