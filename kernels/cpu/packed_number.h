// SPDX-License-Identifier: Apache-2.0
// The numbers that codes are for, in vectors: floats, or pairs of bf16 for their dot product.
//
// As pairs, u4 becomes 16 + code by a shift, u8 code − 127.5 and e4m3 its number by tables of
// bytes; codes of four bits by words stay whole numbers. Zero points are not taken off then:
// whoever adds the products up takes off what is too much, times the sum of x.
#ifndef BERTH_KERNELS_CPU_PACKED_NUMBER_H
#define BERTH_KERNELS_CPU_PACKED_NUMBER_H

#include <cpu/linear_tile.h>
#include <cpu/packed_layout.h>

#define PACKED_TABLE 256 // bytes: of the bf16 of numbers 0 to 127 the lower, then the upper halves

// What the numbers below are to be multiplied by: those of e2m1 are doubled, so that they are
// whole, and e4m3 as floats is widened as f16, whose exponents begin lower.
static inline float packed_factor(packed_kind kind, int product) {
    return kind == PACKED_E2M1 ? 0.5f : kind == PACKED_E4M3 && product == TIMES_F32 ? 0x1p8f : 1.0f;
}

// How much more a code's number is where no zero point is given: codes of i8 are those of u8 then.
#define PACKED_E2M1_ZERO 12
static inline float packed_zero_of(berth_code code) {
    return code == BERTH_CODE_I8     ? 128
           : code == BERTH_CODE_E2M1 ? PACKED_E2M1_ZERO
                                     : berth_code_zero(code);
}

// The largest number of a code of four bits.
static inline float packed_largest(packed_kind kind) {
    return kind == PACKED_E2M1 ? 2 * PACKED_E2M1_ZERO : 15;
}

// How much more they are than codes, where zero points are not taken off.
static inline float packed_excess(packed_kind kind, int product) {
    return kind == PACKED_I8     ? 128.0f
           : !is_paired(product) ? 0.0f
           : kind == PACKED_U4   ? 16.0f
           : kind == PACKED_U8   ? -127.5f
                                 : 0.0f;
}

// Whether x is words in fixed point (packed_fixed.h), and sums are integers that are numbers.
BERTH_INLINE int packed_is_fixed(packed_kind kind, int product) {
    return product == DOT_WORDS && kind != PACKED_I8;
}

// Whether those words lie as their upper and lower bytes: of one row.
BERTH_INLINE int packed_is_by_bytes(packed_kind kind, int product, int64_t rows) {
    return packed_is_fixed(kind, product) && rows == 1;
}

// Whether zero points come off the sums, which takes those of x.
BERTH_INLINE int packed_has_sums(packed_kind kind, int product) {
    return kind == PACKED_I8 || (product != TIMES_F32 && kind != PACKED_E4M3);
}

// A float with this exponent is a whole number, its lowest bits: 2^23 more than a code there.
#define PACKED_WHOLE 0x1p23f

// ---- floats -------------------------------------------------------------------------------------

BERTH_INLINE berth_vec packed_as_f16(berth_vec_halves halves) {
    return berth_vec_load_f16((const uint16_t *)&halves);
}

BERTH_INLINE berth_vec packed_e4m3(berth_vec_halves code) {
    const berth_vec_halves magnitude = code & 0x7f;
    const berth_vec_halves is_nan = (berth_vec_halves)(magnitude == 0x7f);
    return packed_as_f16(magnitude << 7 | (code & 0x80) << 8 | (is_nan & 0x7e00));
}

// A byte of each output, as 16 bits.
BERTH_INLINE berth_vec_halves packed_halves(const uint8_t *codes, int second) {
    berth_vec_halves both;
    memcpy(&both, codes, sizeof both);
    return second ? both >> 8 : both & 0xff;
}

// The numbers of codes of four bits, one in a byte; a byte of zeros stays what it is.
BERTH_INLINE berth_vec_bits packed_numbers_of(packed_kind kind, berth_vec_bits codes) {
    static const uint8_t of_e2m1[] = {0, 4, 6, 8, 9, 10, 11, 12, 12, 13, 14, 15, 16, 18, 20, 24};
    berth_vec_bits table;
    if (kind != PACKED_E2M1) {
        return codes;
    }
    for (size_t i = 0; i < sizeof table; i += sizeof of_e2m1) {
        memcpy((char *)&table + i, of_e2m1, sizeof of_e2m1);
    }
    return berth_vec_pick_nibbles(table, codes);
}

// Column `column` of a step, less the zero points.
BERTH_INLINE berth_vec packed_number(packed_kind kind, const uint8_t *codes, int column,
                                     berth_vec zeros) {
    if (kind == PACKED_E4M3) {
        return packed_e4m3(packed_halves(codes, column));
    }
    const int bit = column / 2 * 4 + column % 2 * 16;
    const berth_vec_bits code =
        packed_is_half(kind)
            ? packed_numbers_of(kind, (berth_vec_bits)berth_vec_load(codes) >> bit & 15u)
            : berth_vec_widen(packed_halves(codes, column));
    return (berth_vec)(code | (berth_vec_bits)berth_vec_of(PACKED_WHOLE)) - zeros;
}

// ---- pairs of bf16 ------------------------------------------------------------------------------

// As wide as the vectors of any set that has berth_vec_pick_bytes.
typedef uint8_t packed_wide_bytes __attribute__((vector_size(64)));
typedef float packed_wide __attribute__((vector_size(64)));

// Bytes of two vectors by turns, within each quarter of them. Why not across: it takes one step of
// the processor's where that takes two. `packed_order` puts right what stands in other lanes then.
BERTH_INLINE void packed_turn(berth_vec_bits low, berth_vec_bits high, berth_vec out[2]) {
    packed_wide_bytes a = {0};
    packed_wide_bytes b = {0};
    memcpy(&a, &low, sizeof low);
    memcpy(&b, &high, sizeof high);
    const packed_wide_bytes first = __builtin_shufflevector(
        a, b, 0, 64, 1, 65, 2, 66, 3, 67, 4, 68, 5, 69, 6, 70, 7, 71, 16, 80, 17, 81, 18, 82, 19,
        83, 20, 84, 21, 85, 22, 86, 23, 87, 32, 96, 33, 97, 34, 98, 35, 99, 36, 100, 37, 101, 38,
        102, 39, 103, 48, 112, 49, 113, 50, 114, 51, 115, 52, 116, 53, 117, 54, 118, 55, 119);
    const packed_wide_bytes second = __builtin_shufflevector(
        a, b, 8, 72, 9, 73, 10, 74, 11, 75, 12, 76, 13, 77, 14, 78, 15, 79, 24, 88, 25, 89, 26, 90,
        27, 91, 28, 92, 29, 93, 30, 94, 31, 95, 40, 104, 41, 105, 42, 106, 43, 107, 44, 108, 45,
        109, 46, 110, 47, 111, 56, 120, 57, 121, 58, 122, 59, 123, 60, 124, 61, 125, 62, 126, 63,
        127);
    memcpy(&out[0], &first, sizeof out[0]);
    memcpy(&out[1], &second, sizeof out[1]);
}

// What packed_turn has made, or sums of it, output by output.
BERTH_INLINE void packed_order(berth_vec both[2]) {
    packed_wide a = {0};
    packed_wide b = {0};
    memcpy(&a, &both[0], sizeof both[0]);
    memcpy(&b, &both[1], sizeof both[1]);
    const packed_wide first =
        __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const packed_wide second =
        __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    memcpy(&both[0], &first, sizeof both[0]);
    memcpy(&both[1], &second, sizeof both[1]);
}

BERTH_INLINE berth_vec_bits packed_bits(const void *from) {
    return (berth_vec_bits)berth_vec_load(from);
}

// The pairs of two vectors of outputs, which packed_order puts in order. Of u8 the lower half
// counts down from 127: the code with its bits changed, and the sign.
BERTH_INLINE void packed_look_up(packed_kind kind, const uint8_t *codes, const uint8_t *table,
                                 berth_vec pairs[2]) {
    const berth_vec_bits code = packed_bits(codes);
    const berth_vec_bits sign = (kind == PACKED_U8 ? ~code : code) & 0x80808080u;
    const berth_vec_bits index = kind == PACKED_U8 ? code ^ (sign - (sign >> 7)) : code;
    const berth_vec_bits low =
        berth_vec_pick_bytes(packed_bits(table), packed_bits(table + 64), index);
    const berth_vec_bits high =
        berth_vec_pick_bytes(packed_bits(table + 128), packed_bits(table + 192), index) | sign;
    packed_turn(low, high, pairs);
}

// 16 + code: the four bits are those of a bf16 behind the exponent of 16.
BERTH_INLINE berth_vec packed_shift(const uint8_t *codes, int pair) {
    const berth_vec_bits words = packed_bits(codes);
    const berth_vec_bits moved = pair == 0 ? words << 3 : words >> (4 * pair - 3);
    return (berth_vec)((moved & 0x00780078u) | 0x41804180u);
}

// ---- words --------------------------------------------------------------------------------------

// Sums as numbers.
BERTH_INLINE berth_vec packed_as_numbers(int are_fixed, berth_vec sums) {
    return are_fixed ? __builtin_convertvector((berth_vec_ints)sums, berth_vec) : sums;
}

// The numbers of both codes of a pair of columns; the last ones need no mask.
BERTH_INLINE berth_vec packed_words_of(packed_kind kind, berth_vec_bits codes, int pair) {
    const berth_vec_words words = (berth_vec_words)codes >> (4 * pair);
    return (berth_vec)packed_numbers_of(kind, (berth_vec_bits)(pair == 3 ? words : words & 15));
}

// The numbers of every second pair of a step, the first or the second ones, as bytes: columns 0, 4,
// 1 and 5, or 2, 6, 3 and 7.
BERTH_INLINE berth_vec_bits packed_bytes_at(packed_kind kind, berth_vec_bits codes, int second) {
    return packed_numbers_of(kind, (second ? codes >> 4 : codes) & 0x0f0f0f0fu);
}

// Those of two pairs, one behind the other, as bytes of i8 are to DOT_WORDS.
BERTH_INLINE berth_vec packed_words_of_two(packed_kind kind, const uint8_t *codes, int two) {
    const berth_vec_bits words = packed_bits(codes) >> (8 * two);
    return (berth_vec)packed_numbers_of(kind, (words & 0x000f000fu) | (words << 4 & 0x0f000f00u));
}

// ---- groups -------------------------------------------------------------------------------------

// What the sums of groups become numbers by, of two panels.
typedef struct packed_groups {
    const void *scales;    // [groups][PACKED_WIDTH]
    const uint8_t *zeros;  // the same, or NULL: `zero`
    const float *x_sums;   // [groups][rows]
    const float *x_scales; // [groups][rows]
    const float *bias;     // of integers: [PACKED_WIDTH], added to sums
    float *totals;         // [PACKED_WIDTH / PANEL][rows][PANEL]
    berth_dtype dtype;     // of scales
    float zero;
    float factor; // of packed_factor
    float excess; // of packed_excess
} packed_groups;

// PACKED_WHOLE more than the zero points of a vector of outputs.
BERTH_INLINE berth_vec packed_zeros(const packed_groups *of, int64_t group, int64_t output) {
    berth_vec_bytes codes;
    if (!of->zeros) {
        return berth_vec_of(PACKED_WHOLE + of->zero);
    }
    memcpy(&codes, of->zeros + group * PACKED_WIDTH + output, sizeof codes);
    return (berth_vec)(berth_vec_widen_twice(codes) | (berth_vec_bits)berth_vec_of(PACKED_WHOLE));
}

// What sums of x are to be multiplied by, where zero points are not taken off.
BERTH_INLINE berth_vec packed_less(const packed_groups *of, berth_vec zeros) {
    return berth_vec_of(PACKED_WHOLE) - zeros - berth_vec_of(of->excess);
}

BERTH_INLINE berth_vec packed_scale(const packed_groups *of, int64_t group, int64_t output) {
    return berth_vec_of(of->factor) *
           berth_vec_load_as(of->scales, of->dtype, group * PACKED_WIDTH + output);
}

// A total begins with the first group.
BERTH_INLINE void packed_add_total(float *total, berth_vec numbers, berth_vec scale, float x_scale,
                                   int is_first) {
    const berth_vec by = scale * berth_vec_of(x_scale);
    const berth_vec before = is_first ? berth_vec_of(0) : berth_vec_load(total);
    berth_vec_store(total, berth_vec_fma(numbers, by, before));
}

#endif
