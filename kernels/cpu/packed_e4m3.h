// SPDX-License-Identifier: Apache-2.0
// A few rows by a weight of e4m3 as floats: for sets without the tables of bytes that pairs of bf16
// are made by (packed_number.h). In one of two ways, whose results have the same bits:
//
//   halves   the sign, the exponent and the mantissa of a code are moved to where an f16 has them,
//            in words of whole vectors, and an f16 becomes a float in one instruction
//   shifts   they are moved to where a float has them, which then is 2^-120 of the number; x, codes
//            as well, is so much larger that no product is subnormal. Nine instructions for four
//            vectors of numbers, and none that takes two steps
//
// A subnormal code is a subnormal float by shifts. A Zen 3 does not mind and reads 1.4 times as
// fast by shifts; an Emerald Rapids takes a hundred cycles for each product with one (by shifts 0.5
// GB/s of uniform codes). So e4m3_choose measures. NaN is looked for beside the products: it is
// seldom.
#ifndef BERTH_KERNELS_CPU_PACKED_E4M3_H
#define BERTH_KERNELS_CPU_PACKED_E4M3_H

#include <math.h>

#include <cpu/cpu.h>
#include <cpu/packed_tile.h>

#define E4M3_COLUMNS 2       // of a step
#define E4M3_RAISE   0x1p60f // of x, which is at most 448
#define E4M3_FACTOR  0x1p60f // what is left of 2^120

enum { E4M3_HALVES, E4M3_SHIFTS };

typedef int16_t e4m3_words __attribute__((vector_size(BERTH_LANES * 4)));

// What codes in the upper bytes of words are as f16, 2^-8 of their numbers, or as the upper halves
// of floats; NaN is 480.
BERTH_INLINE e4m3_words e4m3_moved(int way, berth_vec_bits codes) {
    const e4m3_words words = (e4m3_words)codes;
    return way == E4M3_SHIFTS ? (words >> 4) & (int16_t)0x87f0 : (words >> 1) & (int16_t)0xbf80;
}

// Vector `which` of the two that such words are for: the first and the second outputs, by shifts
// the even and the odd ones.
BERTH_INLINE berth_vec e4m3_number(int way, e4m3_words moved, int which) {
    berth_vec_halves halves[2];
    if (way == E4M3_SHIFTS) {
        return which == 0 ? berth_vec_first_of((berth_vec)moved)
                          : berth_vec_second_of((berth_vec)moved);
    }
    memcpy(halves, &moved, sizeof halves);
    return packed_as_f16(halves[which]);
}

// Whether a byte of such maxima is that of a NaN.
BERTH_INLINE int e4m3_has_nan(berth_vec_bits largest) {
    uint32_t any = 0;
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        any |= largest[lane] + 0x01010101u;
    }
    return (any & 0x80808080u) != 0;
}

// What makes sums of outputs NaN that have one among the codes of some steps: [PACKED_WIDTH], else
// 0.
BERTH_SELDOM void e4m3_mark_nan(const packed_chunk *of, berth_span steps, float *out_marks) {
    memset(out_marks, 0, PACKED_WIDTH * sizeof *out_marks);
    for (int64_t step = steps.first; step < steps.end; ++step) {
        const uint8_t *codes = packed_at(PACKED_E4M3, of, step, 0);
        for (int i = 0; i < PACKED_WIDTH * E4M3_COLUMNS; ++i) {
            if ((codes[i] & 0x7f) == 0x7f) {
                out_marks[i / E4M3_COLUMNS] = NAN;
            }
        }
    }
}

BERTH_INLINE void e4m3_add_marks(packed_shape shape, const float *marks, packed_sums sums) {
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        BERTH_UNROLL
        for (int row = 0; row < shape.rows; ++row) {
            sums[row][i] += berth_vec_load(marks + (shape.first + i) * BERTH_LANES);
        }
    }
}

// The numbers of a step; returns what is the larger of every byte, these codes' without their signs
// or `largest`.
BERTH_INLINE berth_vec_bits e4m3_load(packed_shape shape, int way, const uint8_t *codes,
                                      packed_vectors numbers[E4M3_COLUMNS],
                                      berth_vec_bits largest) {
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; i += 2) {
        const berth_vec_bits bits = packed_bits(codes + i * BERTH_LANES * E4M3_COLUMNS);
        const e4m3_words first = e4m3_moved(way, (berth_vec_bits)((e4m3_words)bits << 8));
        const e4m3_words second = e4m3_moved(way, bits);
        largest = berth_vec_larger_bytes(largest, bits & 0x7f7f7f7fu);
        BERTH_UNROLL
        for (int which = 0; which < 2; ++which) {
            numbers[0][i + which] = e4m3_number(way, first, which);
            numbers[1][i + which] = e4m3_number(way, second, which);
        }
    }
    return largest;
}

BERTH_INLINE void e4m3_add(packed_shape shape, int way, packed_sums sums, packed_vectors numbers,
                           const float *x) {
    const berth_vec raise = berth_vec_of(way == E4M3_SHIFTS ? E4M3_RAISE : 1);
    berth_vec values[PACKED_FEW];
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        values[row] = berth_vec_of_bits(x + row) * raise;
    }
    packed_add_values(shape, sums, numbers, values);
}

// Even and odd outputs by turns again.
BERTH_INLINE void e4m3_settle(packed_shape shape, int way, packed_sums sums) {
    if (way == E4M3_HALVES) {
        return;
    }
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; i += 2) {
        BERTH_UNROLL
        for (int row = 0; row < shape.rows; ++row) {
            const berth_vec even = sums[row][i];
            const berth_vec odd = sums[row][i + 1];
            sums[row][i] = berth_vec_low(even, odd);
            sums[row][i + 1] = berth_vec_high(even, odd);
        }
    }
}

// As packed_multiply.
BERTH_INLINE void e4m3_multiply(packed_shape shape, int way, const packed_chunk *all,
                                const packed_groups *groups, int64_t steps) {
    const packed_chunk of = *all;
    packed_groups by = *groups;
    by.factor = way == E4M3_SHIFTS ? E4M3_FACTOR : by.factor;
    for (int64_t first = 0, group = 0; first < of.steps; first += steps, ++group) {
        const berth_span span = {first, at_most(first + steps, of.steps)};
        berth_vec_bits largest = {0};
        packed_sums sums;
        packed_begin(shape, sums);
        for (int64_t step = span.first; step < span.end; ++step) {
            const float *x = of.x + step * E4M3_COLUMNS * shape.rows;
            packed_vectors numbers[E4M3_COLUMNS];
            packed_prefetch(shape, &of, step);
            largest = e4m3_load(shape, way, packed_at(shape.kind, &of, step, shape.first), numbers,
                                largest);
            e4m3_add(shape, way, sums, numbers[0], x);
            e4m3_add(shape, way, sums, numbers[1], x + shape.rows);
        }
        e4m3_settle(shape, way, sums);
        if (__builtin_expect(e4m3_has_nan(largest), 0)) {
            float marks[PACKED_WIDTH];
            e4m3_mark_nan(&of, span, marks);
            e4m3_add_marks(shape, marks, sums);
        }
        packed_finish(shape, sums, &by, group);
    }
}

#define E4M3_TILE(way, rows)                                                                       \
    static void way##_##rows(const packed_chunk *of, const packed_groups *by, int64_t steps) {     \
        enum { VECTORS = PACKED_FIT(rows) };                                                       \
        for (int first = 0; first < PACKED_VECTORS; first += VECTORS) {                            \
            const packed_shape shape = {PACKED_E4M3, TIMES_F32, rows, first, VECTORS};             \
            e4m3_multiply(shape, way, of, by, steps);                                              \
        }                                                                                          \
    }
E4M3_TILE(E4M3_HALVES, 1)
E4M3_TILE(E4M3_HALVES, 2)
E4M3_TILE(E4M3_HALVES, 3)
E4M3_TILE(E4M3_HALVES, 4)
E4M3_TILE(E4M3_SHIFTS, 1)
E4M3_TILE(E4M3_SHIFTS, 2)
E4M3_TILE(E4M3_SHIFTS, 3)
E4M3_TILE(E4M3_SHIFTS, 4)

// ---- choosing -----------------------------------------------------------------------------------

#define E4M3_TRIALS 256 // of less than a microsecond
#define E4M3_STEPS  32

// 1: shifts are faster, with a weight of which every code is subnormal; -1: they are not.
static inline int e4m3_choose(void) {
    static const packed_fn ways[] = {E4M3_HALVES_1, E4M3_SHIFTS_1};
    uint8_t codes[E4M3_STEPS * PACKED_WIDTH * E4M3_COLUMNS];
    float ones[E4M3_STEPS * E4M3_COLUMNS];
    const float scales[PACKED_WIDTH] = {0};
    float totals[PACKED_WIDTH];
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    memset(codes, 1, sizeof codes);
    for (int i = 0; i < E4M3_STEPS * E4M3_COLUMNS; ++i) {
        ones[i] = 1;
    }
    const packed_chunk of = {.codes = codes, .x = ones, .steps = E4M3_STEPS};
    const packed_groups by = {
        .scales = scales,
        .x_sums = ones,
        .x_scales = ones,
        .totals = totals,
        .dtype = BERTH_DTYPE_F32,
    };
    for (int trial = 0; trial < 2 * E4M3_TRIALS; ++trial) {
        const int64_t start = nanoseconds_now();
        ways[trial % 2](&of, &by, E4M3_STEPS);
        best[trial % 2] = at_most(nanoseconds_now() - start, best[trial % 2]);
    }
    return best[E4M3_SHIFTS] < best[E4M3_HALVES] ? 1 : -1;
}

#endif
