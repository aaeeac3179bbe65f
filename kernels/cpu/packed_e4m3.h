// SPDX-License-Identifier: Apache-2.0
// A few rows of codes of e4m3 by a weight of the same, as floats: for sets without the tables of
// bytes that pairs of bf16 are made by (packed_number.h).
//
// The sign, the exponent and the mantissa of a code are moved to where a float has them, which then
// is 2^-120 of the number, a subnormal one too. x is so much larger meanwhile that no product is
// subnormal; as both are powers of two, sums have the bits that packed_tile.h gives them. Two
// outputs by two columns lie in 32 bits, so nothing has to be taken apart: 9 instructions for
// four vectors of numbers, where widening by way of f16 takes four times as many.
#ifndef BERTH_KERNELS_CPU_PACKED_E4M3_H
#define BERTH_KERNELS_CPU_PACKED_E4M3_H

#include <math.h>

#include <cpu/packed_tile.h>

#define E4M3_X_RAISE 0x1p60f // x is at most 448
#define E4M3_FACTOR  0x1p60f // what is left of 2^120

#define E4M3_COLUMNS 2 // of a step

// The numbers of a step for two vectors of outputs: those of even outputs, then those of odd ones.
typedef struct e4m3_numbers {
    berth_vec of[2][E4M3_COLUMNS];
} e4m3_numbers;

typedef int16_t e4m3_words __attribute__((vector_size(BERTH_LANES * 4)));

// Of the code in the upper byte of every word: what a float's upper half is.
BERTH_INLINE berth_vec_bits e4m3_halves(berth_vec_bits codes) {
    return (berth_vec_bits)((e4m3_words)codes >> 4) & 0x87f087f0u;
}

BERTH_INLINE e4m3_numbers e4m3_numbers_of(berth_vec_bits codes) {
    const berth_vec_bits first = e4m3_halves((berth_vec_bits)((e4m3_words)codes << 8));
    const berth_vec_bits second = e4m3_halves(codes);
    return (e4m3_numbers){
        .of = {{berth_vec_first_of((berth_vec)first), berth_vec_first_of((berth_vec)second)},
               {berth_vec_second_of((berth_vec)first), berth_vec_second_of((berth_vec)second)}},
    };
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

// Returns what is the larger of every byte, this step's without their signs or `largest`.
BERTH_INLINE berth_vec_bits e4m3_add_step(packed_shape shape, packed_sums sums,
                                          const packed_chunk *of, int64_t step,
                                          berth_vec_bits largest) {
    const float *x = of->x + step * E4M3_COLUMNS * shape.rows;
    berth_vec values[PACKED_FEW][E4M3_COLUMNS];
    BERTH_UNROLL
    for (int i = 0; i < shape.rows * E4M3_COLUMNS; ++i) {
        values[i % shape.rows][i / shape.rows] =
            berth_vec_of_bits(x + i) * berth_vec_of(E4M3_X_RAISE);
    }
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; i += 2) {
        const berth_vec_bits codes = packed_bits(packed_at(shape.kind, of, step, shape.first + i));
        const e4m3_numbers numbers = e4m3_numbers_of(codes);
        largest = berth_vec_larger_bytes(largest, codes & 0x7f7f7f7fu);
        BERTH_UNROLL
        for (int at = 0; at < 2 * E4M3_COLUMNS * shape.rows; ++at) {
            const int row = at % shape.rows;
            const int odd = at / shape.rows % 2;
            const int column = at / shape.rows / 2;
            sums[row][i + odd] = berth_vec_add_product(sums[row][i + odd], numbers.of[odd][column],
                                                       values[row][column]);
        }
    }
    return largest;
}

// Even and odd outputs by turns again.
BERTH_INLINE void e4m3_settle(packed_shape shape, packed_sums sums) {
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; i += 2) {
            const berth_vec even = sums[row][i];
            const berth_vec odd = sums[row][i + 1];
            sums[row][i] = berth_vec_low(even, odd);
            sums[row][i + 1] = berth_vec_high(even, odd);
        }
    }
}

// As packed_multiply.
BERTH_INLINE void e4m3_multiply(packed_shape shape, const packed_chunk *all,
                                const packed_groups *groups, int64_t steps) {
    const packed_chunk of = *all;
    packed_groups by = *groups;
    by.factor = E4M3_FACTOR;
    for (int64_t first = 0, group = 0; first < of.steps; first += steps, ++group) {
        const berth_span span = {first, at_most(first + steps, of.steps)};
        berth_vec_bits largest = {0};
        packed_vectors zeros;
        packed_sums sums;
        packed_begin(shape, &by, group, sums, zeros);
        for (int64_t step = span.first; step < span.end; ++step) {
            packed_prefetch(shape, &of, step);
            largest = e4m3_add_step(shape, sums, &of, step, largest);
        }
        e4m3_settle(shape, sums);
        if (__builtin_expect(e4m3_has_nan(largest), 0)) {
            float marks[PACKED_WIDTH];
            e4m3_mark_nan(&of, span, marks);
            e4m3_add_marks(shape, marks, sums);
        }
        packed_finish(shape, sums, &by, group, zeros);
    }
}

#define E4M3_TILE(rows)                                                                            \
    static void e4m3_##rows(const packed_chunk *of, const packed_groups *by, int64_t steps) {      \
        enum { VECTORS = PACKED_FIT(rows) };                                                       \
        for (int first = 0; first < PACKED_VECTORS; first += VECTORS) {                            \
            const packed_shape shape = {PACKED_E4M3, TIMES_F32, rows, first, VECTORS};             \
            e4m3_multiply(shape, of, by, steps);                                                   \
        }                                                                                          \
    }
E4M3_TILE(1)
E4M3_TILE(2)
E4M3_TILE(3)
E4M3_TILE(4)

#endif
