// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a few columns of a weight of codes (packed_layout.h): the numbers that the
// codes are for, times x; scales come when a group of columns is complete.
//
//   floats     codes become floats, less the zero point, and are multiplied as such
//   bf16       where x is bf16 too and its dot product is fast
//   words      codes of four bits by x in fixed point, exact sums (packed_fixed.h)
//   integers   i8 by i8, exact (packed_tiles.h)
//
// A few rows widen codes in registers; many once, to panels of linear: the same sums in order.
#ifndef BERTH_KERNELS_CPU_PACKED_TILE_H
#define BERTH_KERNELS_CPU_PACKED_TILE_H

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
    int in_places; // as a tile has it
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

// A pair of a step, for vectors [first, first + vectors), both even; packed_settle ends it.
BERTH_INLINE void packed_pairs(packed_shape shape, const packed_chunk *of, int64_t step, int pair,
                               packed_vectors pairs) {
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; i += 2) {
        const uint8_t *codes = packed_at(shape.kind, of, step, shape.first + i);
        if (shape.kind == PACKED_U4) {
            pairs[i] = packed_shift(codes, pair);
            pairs[i + 1] = packed_shift(codes + sizeof(berth_vec), pair);
        } else {
            packed_look_up(shape.kind, codes, of->table, pairs + i);
        }
    }
}

// Whether pairs, and sums of them, are not in order before packed_order.
BERTH_INLINE int packed_is_turned(packed_kind kind, int product) {
    return is_paired(product) && kind != PACKED_U4;
}

BERTH_INLINE void packed_settle(packed_shape shape, packed_vectors of) {
    if (!packed_is_turned(shape.kind, shape.product)) {
        return;
    }
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; i += 2) {
        packed_order(of + i);
    }
}

// ---- a few rows ---------------------------------------------------------------------------------

// Adds the products of one word of x for every row, which is in every lane.
BERTH_INLINE void packed_add(packed_shape shape, packed_sums sums, packed_vectors weights,
                             const float *x) {
    berth_vec values[PACKED_FEW];
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        values[row] = berth_vec_of_bits(x + row);
    }
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        BERTH_UNROLL
        for (int row = 0; row < shape.rows; ++row) {
            sums[row][i] = add_product(shape.product, sums[row][i], weights[i], values[row]);
        }
    }
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

// Of one row, whose words lie as their upper and lower bytes (packed_split_words): products of
// bytes by bytes, whose sums of four fit in words. Codes are widened two at a time and not one by
// one, which is what they take longest for.
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

BERTH_INLINE void packed_add_step(packed_shape shape, packed_sums sums, const packed_chunk *of,
                                  int64_t step, packed_vectors zeros) {
    const int words = packed_columns(shape.kind) / (shape.product == DOT_BF16 ? 2 : 1);
    packed_vectors weights;
    if (shape.product == DOT_WORDS && shape.rows == 1) {
        packed_add_bytes(shape, sums, of, step);
        return;
    }
    if (shape.product == DOT_WORDS) {
        packed_add_words(shape, sums, of, step);
        return;
    }
    BERTH_UNROLL
    for (int word = 0; word < words; ++word) {
        if (shape.product == DOT_BF16) {
            packed_pairs(shape, of, step, word, weights);
        } else {
            BERTH_UNROLL
            for (int i = 0; i < shape.vectors; ++i) {
                const uint8_t *codes = packed_at(shape.kind, of, step, shape.first + i);
                weights[i] = packed_number(shape.kind, codes, word, zeros[i]);
            }
        }
        packed_add(shape, sums, weights, of->x + (step * words + word) * shape.rows);
    }
}

// Arithmetic takes so long that the processor's own fetching falls behind. Why into the first
// cache: sums wait for one another, and would for the second one, too (Zen 5, u4: 0.93 against
// 0.97). Into the second one where that is busy with what is widened (Emerald Rapids, fp8: 0.86
// against 0.78).
BERTH_INLINE void packed_prefetch(packed_shape shape, const packed_chunk *of, int64_t step) {
    const char *codes = (const char *)packed_at(shape.kind, of, step, 0);
    places_lines ahead = places_ahead(codes, of->in_places, PACKED_NEAR);
    ahead.is_far |= shape.rows == 0;
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        const int byte = (shape.first + i) * BERTH_LANES * packed_bytes_of(shape.kind);
        if (byte % BERTH_LINE == 0) {
            places_ask(ahead, byte / BERTH_LINE);
        }
    }
}

BERTH_INLINE void packed_finish(packed_shape shape, packed_sums sums, const packed_groups *by,
                                int64_t group) {
    const int has_sums = packed_has_sums(shape.kind, shape.product);
    const int are_fixed = packed_is_fixed(shape.kind, shape.product);
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        packed_settle(shape, sums[row]);
    }
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        const int output = (shape.first + i) * BERTH_LANES;
        const berth_vec scale = packed_scale(by, group, output);
        const berth_vec less = packed_less(by, packed_zeros(by, group, output));
        float *totals = by->totals + output / PANEL * shape.rows * PANEL + output % PANEL;
        BERTH_UNROLL
        for (int row = 0; row < shape.rows; ++row) {
            const int64_t at = group * shape.rows + row;
            const berth_vec sum = packed_as_numbers(are_fixed, sums[row][i]);
            const berth_vec numbers =
                has_sums ? berth_vec_fma(less, berth_vec_of(by->x_sums[at]), sum) : sum;
            packed_add_total(totals + row * PANEL, numbers, scale, by->x_scales[at], group == 0);
        }
    }
}

BERTH_INLINE void packed_begin(packed_shape shape, packed_sums sums) {
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        BERTH_UNROLL
        for (int row = 0; row < shape.rows; ++row) {
            sums[row][i] = berth_vec_of(0);
        }
    }
}

// All columns; a group has so many steps, the last perhaps fewer.
BERTH_INLINE void packed_multiply(packed_shape shape, const packed_chunk *all,
                                  const packed_groups *groups, int64_t steps) {
    const packed_chunk of = *all;
    const packed_groups by = *groups;
    for (int64_t step = 0, group = 0; step < of.steps; ++group) {
        const int64_t end = at_most(step + steps, of.steps);
        packed_vectors zeros;
        packed_sums sums;
        packed_begin(shape, sums);
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            zeros[i] = packed_zeros(&by, group, (shape.first + i) * BERTH_LANES);
        }
        for (; step < end; ++step) {
            packed_prefetch(shape, &of, step);
            packed_add_step(shape, sums, &of, step, zeros);
        }
        packed_finish(shape, sums, &by, group);
    }
}

typedef void (*packed_fn)(const packed_chunk *of, const packed_groups *by, int64_t steps);

#endif
