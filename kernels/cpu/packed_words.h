// SPDX-License-Identifier: Apache-2.0
// Codes of four bits by x in fixed point (packed_fixed.h), of a few rows: a step's products, which
// are exact. And what every tile of packed_tile.h is compiled for.
#ifndef BERTH_KERNELS_CPU_PACKED_WORDS_H
#define BERTH_KERNELS_CPU_PACKED_WORDS_H

#include <cpu/packed_number.h>

#define PACKED_CHUNK 128  // columns at a time
#define PACKED_FEW   4    // rows
#define PACKED_NEAR  8192 // bytes of the weight that are on their way to the first cache

// Columns of two panels.
typedef struct packed_chunk {
    const uint8_t *codes; // at the first step
    const uint8_t *table; // [PACKED_TABLE]
    const float *x;       // [columns][rows]; of bf16 and words pairs of columns
    int64_t steps;
    int places_way; // as a tile has it
} packed_chunk;

// What is compiled for: so many rows by vectors [first, first + vectors) of the panels.
typedef struct packed_shape {
    packed_kind kind;
    int product; // TIMES_F32, DOT_WORDS or DOT_BF16, which stands for all pairs where those are
                 // widened
    int rows;    // 0: codes are widened to memory, for any number of them
    int first;
    int vectors;
} packed_shape;

#define PACKED_VECTORS (PACKED_WIDTH / BERTH_LANES)

// Vectors of so many rows: as many sums as can be added at once, and as fit in any set's registers.
#define PACKED_FIT(rows)                                                                           \
    (BERTH_TILE_ROWS * 4 / 3 / ((rows) == 3 ? 4 : (rows)) < PACKED_VECTORS                         \
         ? BERTH_TILE_ROWS * 4 / 3 / ((rows) == 3 ? 4 : (rows))                                    \
         : PACKED_VECTORS)

typedef berth_vec packed_vectors[PACKED_VECTORS];
typedef berth_vec packed_sums[PACKED_FEW][PACKED_VECTORS];

// The codes of a step for the outputs of vector `index`.
BERTH_INLINE const uint8_t *packed_at(packed_kind kind, const packed_chunk *of, int64_t step,
                                      int index) {
    return of->codes + (step * PACKED_WIDTH + index * BERTH_LANES) * packed_bytes_of(kind);
}

// Of four bits by words, vector by vector: all of a step's columns are in one.
BERTH_INLINE void packed_add_words(packed_shape shape, packed_sums sums, const packed_chunk *of,
                                   int64_t step) {
    enum { PAIRS = 4 };
    berth_vec values[PACKED_FEW][PAIRS];
    BERTH_UNROLL
    for (int i = 0; i < shape.rows * PAIRS; ++i) {
        const float *x = of->x + step * PAIRS * shape.rows;
        values[i % shape.rows][i / shape.rows] = berth_vec_of_bits(x + i);
    }
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        const berth_vec_bits codes = packed_bits(packed_at(shape.kind, of, step, shape.first + i));
        BERTH_UNROLL
        for (int pair = 0; pair < PAIRS; ++pair) {
            const berth_vec weight = packed_words_of(shape.kind, codes, pair);
            BERTH_UNROLL
            for (int row = 0; row < shape.rows; ++row) {
                sums[row][i] = add_product(DOT_WORDS, sums[row][i], weight, values[row][pair]);
            }
        }
    }
}

// Of one row, whose words lie as their upper and lower bytes (fixed_split): products of bytes by
// bytes, whose sums of four fit in words. Codes become bytes, so that a step of the processor
// widens four of them and not two. Why all vectors at once, though AVX2 keeps some sums in memory:
// four at a time, 16 steps each, read at 0.45 of the reading rate on a Zen 3, eight at 0.65.
BERTH_INLINE void packed_add_bytes(packed_shape shape, packed_sums sums, const packed_chunk *of,
                                   int64_t step) {
    const float *x = of->x + step * 4;
    const berth_vec_bits upper[2] = {(berth_vec_bits)berth_vec_of_bits(x),
                                     (berth_vec_bits)berth_vec_of_bits(x + 1)};
    const berth_vec_bits lower[2] = {(berth_vec_bits)berth_vec_of_bits(x + 2),
                                     (berth_vec_bits)berth_vec_of_bits(x + 3)};
    const berth_vec_bits none = {0};
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        const berth_vec_bits codes = packed_bits(packed_at(shape.kind, of, step, shape.first + i));
        const berth_vec_bits first = packed_bytes_at(shape.kind, codes, 0);
        const berth_vec_bits second = packed_bytes_at(shape.kind, codes, 1);
        const berth_vec_words of_upper =
            berth_vec_dot_pairs(first, upper[0]) + berth_vec_dot_pairs(second, upper[1]);
        const berth_vec_words of_lower =
            berth_vec_dot_pairs(lower[0], first) + berth_vec_dot_pairs(lower[1], second);
        const berth_vec_bits sum = berth_vec_dot_words(
            (berth_vec_bits)sums[0][i], (berth_vec_bits)of_upper, none + 0x01000100u);
        sums[0][i] =
            (berth_vec)berth_vec_dot_words(sum, (berth_vec_bits)of_lower, none + 0x00010001u);
    }
}

#endif
