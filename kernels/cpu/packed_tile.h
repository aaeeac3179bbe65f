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

#include <cpu/packed_words.h>

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

BERTH_INLINE void packed_add_step(packed_shape shape, packed_sums sums, const packed_chunk *of,
                                  int64_t step, packed_vectors zeros) {
    const int words = packed_columns(shape.kind) / (shape.product == DOT_BF16 ? 2 : 1);
    packed_vectors weights;
    if (packed_is_by_bytes(shape.kind, shape.product, shape.rows)) {
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
    const int way = shape.rows == 1 ? of->places_way : places_asked(of->places_way);
    places_lines ahead = places_ahead(codes, way, PACKED_NEAR);
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
