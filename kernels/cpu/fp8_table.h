// SPDX-License-Identifier: Apache-2.0
// Codes of f8_e4m3fn out of a table, of bf16 numbers that are divided by a scale that the largest
// of them made: for machines that berth_vec_has_pick_bytes.
//
// A quotient's mantissa is that of two mantissas, as long as neither it nor a code is subnormal. A
// number of bf16 has one of 128, and so has the largest of a group, which makes the scale's. So the
// code is a number of a table of 128 by 128, more by 8 for every power of two; the table was
// divided and rounded as the reference does it.
#ifndef BERTH_KERNELS_CPU_FP8_TABLE_H
#define BERTH_KERNELS_CPU_FP8_TABLE_H

#include <cpu/fp8_codes.h>

#define VEC_F8_MANTISSAS 128 // of bf16

// [of the largest][of the number]
typedef struct vec_f8_table {
    uint8_t of[VEC_F8_MANTISSAS][VEC_F8_MANTISSAS];
} vec_f8_table;

// A number's exponent less this one, at least 0, is its step. At step 0 the code is 0; up to
// VEC_F8_LAST_STEP codes are subnormal, or nearly so, and the table has none.
static inline int vec_f8_first_exponent(float scale) {
    return (int)(berth_bits_of_float(scale) >> 23) - 11;
}
#define VEC_F8_LAST_STEP 5

static inline void vec_f8_make_table(vec_f8_table *table) {
    const uint32_t some = 0x3d000000u; // 2^-5, of which no quotient is too large or subnormal
    for (uint32_t largest = 0; largest < VEC_F8_MANTISSAS; ++largest) {
        const float scale = berth_float_of_bits(0x3f800000u + (largest << 16)) / BERTH_F8_MAX;
        const int step = (int)(some >> 23) - vec_f8_first_exponent(scale);
        for (uint32_t i = 0; i < VEC_F8_MANTISSAS; ++i) {
            const float quotient = berth_float_of_bits(some + (i << 16)) / scale;
            table->of[largest][i] = (uint8_t)(berth_to_f8(quotient) - 8 * step);
        }
    }
}

// The rows for the scales of groups; returns bits, 1: there is none. A scale that is a power of two
// is that of 1.75 times one.
BERTH_INLINE uint32_t vec_f8_rows(berth_vec largest, berth_vec scales,
                                  int32_t out_rows[BERTH_LANES]) {
    const berth_vec_ints bits = (berth_vec_ints)scales;
    const berth_vec_ints is_power = (bits & 0x7fffff) == 0;
    const berth_vec_ints is_made =
        (berth_vec_ints)(scales == largest / berth_vec_of(BERTH_F8_MAX)) | is_power;
    const berth_vec_ints is_known = is_made & (bits < 0x7f800000); // and no NaN: none has a sign
    const berth_vec_ints row = (berth_vec_ints)largest >> 16 & (VEC_F8_MANTISSAS - 1);
    const berth_vec_ints rows = (96 & is_power) | (row & ~is_power);
    memcpy(out_rows, &rows, sizeof rows);
    if (berth_vec_are_bytes((berth_vec_bits)is_known, ~(berth_vec_bits){0})) {
        return 0;
    }
    uint32_t unknown = 0;
    for (int i = 0; i < BERTH_LANES; ++i) {
        unknown |= (is_known[i] == 0 ? 1U : 0U) << i;
    }
    return unknown;
}

// A row of the table, and the first exponent in every byte.
typedef struct vec_f8_lookup {
    berth_vec_bits lower;
    berth_vec_bits upper;
    berth_vec_bits first;
} vec_f8_lookup;

BERTH_INLINE vec_f8_lookup vec_f8_lookup_of(const uint8_t *row, float scale) {
    const vec_f8_bytes first = (vec_f8_bytes){0} + (uint8_t)vec_f8_first_exponent(scale);
    return (vec_f8_lookup){
        .lower = (berth_vec_bits)berth_vec_load(row),
        .upper = (berth_vec_bits)berth_vec_load(row + sizeof(berth_vec)),
        .first = (berth_vec_bits)first,
    };
}

// The codes of two vectors of bf16, in order. A byte of `most` is above VEC_F8_FOUND where one is
// not right.
#define VEC_F8_FOUND (255 - VEC_F8_LAST_STEP)
BERTH_INLINE berth_vec_bits vec_f8_look_up(const vec_f8_lookup *by, berth_vec_words a,
                                           berth_vec_words b, berth_vec_bits *most) {
    const vec_f8_bytes even = vec_f8_lower_bytes();
    const berth_vec_bits lower =
        berth_vec_pick_bytes((berth_vec_bits)a, (berth_vec_bits)b, (berth_vec_bits)even);
    const berth_vec_bits upper =
        berth_vec_pick_bytes((berth_vec_bits)a, (berth_vec_bits)b, (berth_vec_bits)(even + 1));
    const berth_vec_bits exponents = berth_vec_pick_bytes(
        (berth_vec_bits)(a >> 7), (berth_vec_bits)(b >> 7), (berth_vec_bits)even);
    const vec_f8_bytes first = (vec_f8_bytes)by->first;
    const vec_f8_bytes bound = (vec_f8_bytes)berth_vec_larger_bytes(exponents, by->first);
    const vec_f8_bytes found = (vec_f8_bytes)berth_vec_pick_bytes(by->lower, by->upper, lower);
    const vec_f8_bytes steps = bound - first;
    const vec_f8_bytes eights = (vec_f8_bytes)((berth_vec_words)steps << 3); // steps are below 32
    const berth_vec_bits codes =
        berth_vec_if_bytes((berth_vec_bits)steps, (berth_vec_bits)(found + eights));
    *most = berth_vec_larger_bytes(*most, (berth_vec_bits)(first - bound));
    return vec_f8_signed_bytes(codes, upper);
}

BERTH_INLINE int vec_f8_are_found(berth_vec_bits most) {
    const berth_vec_bits limit = (berth_vec_bits)((vec_f8_bytes){0} + VEC_F8_FOUND);
    return berth_vec_are_bytes(berth_vec_larger_bytes(most, limit), limit);
}

#endif
