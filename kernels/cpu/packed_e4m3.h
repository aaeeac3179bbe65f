// SPDX-License-Identifier: Apache-2.0
// A few rows by a weight of e4m3 as floats: for sets without the tables of bytes that pairs of bf16
// are made by (packed_number.h). In one of two ways, whose results have the same bits:
//
//   halves   the sign, the exponent and the mantissa of a code are moved to where an f16 has them,
//            in words of whole vectors, and an f16 becomes a float in one instruction
//   shifts   they are moved to where a float has them, which then is 2^-120 of the number; x, codes
//            as well, is packed so much larger that no product is subnormal. Eight instructions for
//            four vectors of numbers, and none that takes two steps
//
// A subnormal code is a subnormal float by shifts. A Zen 3 does not mind and reads 1.4 times as
// fast by shifts; an Emerald Rapids takes a hundred cycles for each product with one (by shifts 0.5
// GB/s of uniform codes). So e4m3_choose measures. A NaN is some number in either way: outputs that
// have one are marked (packed_layout.h).
#ifndef BERTH_KERNELS_CPU_PACKED_E4M3_H
#define BERTH_KERNELS_CPU_PACKED_E4M3_H

#include <cpu/cpu.h>
#include <cpu/packed_tile.h>

#define E4M3_COLUMNS 2       // of a step
#define E4M3_RAISE   0x1p60f // of x, which is at most 448
#define E4M3_FACTOR  0x1p60f // what is left of 2^120

enum { E4M3_HALVES, E4M3_SHIFTS };

typedef int16_t e4m3_words __attribute__((vector_size(BERTH_LANES * 4)));

// What the codes of a column, bytes of words, are as f16, 2^-8 of their numbers, or as the upper
// halves of floats; NaN is 480. The even column's are multiplied: shifts are what there is most of.
BERTH_INLINE berth_vec_words e4m3_moved(int way, berth_vec_bits codes, int column) {
    const uint16_t times = way == E4M3_SHIFTS ? 1 << 4 : 1 << 7;
    const berth_vec_words up = (berth_vec_words){0} + times;
    const e4m3_words down = (e4m3_words)codes >> (way == E4M3_SHIFTS ? 4 : 1);
    const berth_vec_words words =
        column == 0 ? berth_vec_dot_pairs((berth_vec_bits)up, codes) : (berth_vec_words)down;
    return words & (uint16_t)(way == E4M3_SHIFTS ? 0x87f0 : 0xbf80);
}

// Vector `which` of the two that such words are for: the first and the second outputs, by shifts
// the even and the odd ones.
BERTH_INLINE berth_vec e4m3_number(int way, berth_vec_words moved, int which) {
    berth_vec_halves halves[2];
    if (way == E4M3_SHIFTS) {
        return which == 0 ? berth_vec_first_of((berth_vec)moved)
                          : berth_vec_second_of((berth_vec)moved);
    }
    memcpy(halves, &moved, sizeof halves);
    return packed_as_f16(halves[which]);
}

// Adds the products of a step, two vectors of codes after two; x: [columns][rows].
BERTH_INLINE void e4m3_add(packed_shape shape, int way, const uint8_t *codes, const float *x,
                           packed_sums sums) {
    berth_vec values[E4M3_COLUMNS][PACKED_FEW];
    BERTH_UNROLL
    for (int i = 0; i < shape.rows * E4M3_COLUMNS; ++i) {
        values[i / shape.rows][i % shape.rows] = berth_vec_of_bits(x + i);
    }
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; i += 2) {
        const berth_vec_bits bits = packed_bits(codes + i * BERTH_LANES * E4M3_COLUMNS);
        BERTH_UNROLL
        for (int at = 0; at < E4M3_COLUMNS * 2; ++at) {
            const int column = at / 2;
            const berth_vec number = e4m3_number(way, e4m3_moved(way, bits, column), at % 2);
            BERTH_UNROLL
            for (int row = 0; row < shape.rows; ++row) {
                berth_vec *sum = &sums[row][i + at % 2];
                *sum = berth_vec_add_product(*sum, number, values[column][row]);
            }
        }
    }
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

// What stands behind the codes of all steps: NaN for outputs that have one among theirs.
BERTH_INLINE void e4m3_add_marks(packed_shape shape, const packed_chunk *of, packed_sums sums) {
    const float *marks = (const void *)packed_at(PACKED_E4M3, of, of->steps, 0);
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        BERTH_UNROLL
        for (int row = 0; row < shape.rows; ++row) {
            sums[row][i] += berth_vec_load(marks + (shape.first + i) * BERTH_LANES);
        }
    }
}

// As packed_multiply, of whole panels.
BERTH_INLINE void e4m3_multiply(packed_shape shape, int way, const packed_chunk *all,
                                const packed_groups *groups, int64_t steps) {
    const packed_chunk of = *all;
    packed_groups by = *groups;
    by.factor = way == E4M3_SHIFTS ? E4M3_FACTOR : by.factor;
    for (int64_t step = 0, group = 0; step < of.steps; ++group) {
        const int64_t end = at_most(step + steps, of.steps);
        packed_sums sums;
        packed_begin(shape, sums);
        for (; step < end; ++step) {
            packed_prefetch(shape, &of, step);
            e4m3_add(shape, way, packed_at(shape.kind, &of, step, shape.first),
                     of.x + step * E4M3_COLUMNS * shape.rows, sums);
        }
        e4m3_settle(shape, way, sums);
        e4m3_add_marks(shape, &of, sums);
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
    uint8_t codes[E4M3_STEPS * PACKED_WIDTH * E4M3_COLUMNS + PACKED_WIDTH * sizeof(float)];
    float x[E4M3_STEPS * E4M3_COLUMNS];
    const float one = 1;
    const float scales[PACKED_WIDTH] = {0};
    float totals[PACKED_WIDTH];
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    memset(codes, 1, sizeof codes);
    for (int i = 0; i < E4M3_STEPS * E4M3_COLUMNS; ++i) {
        x[i] = E4M3_RAISE;
    }
    const packed_chunk of = {.codes = codes, .x = x, .steps = E4M3_STEPS};
    const packed_groups by = {
        .scales = scales,
        .x_sums = &one,
        .x_scales = &one,
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
