// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a few columns of a weight of codes (packed_layout.h): the numbers that the
// codes are for, times x; scales come when a group of columns is complete.
//
//   floats     codes become floats, less the zero point, and are multiplied as such
//   bf16       where x is bf16 too and its dot product is fast
//   integers   i8 by i8, exact
//
// A few rows widen codes in registers; many widen them once, to panels of linear, and have the same
// sums in the same order.
#ifndef BERTH_KERNELS_CPU_PACKED_TILE_H
#define BERTH_KERNELS_CPU_PACKED_TILE_H

#include <cpu/packed_number.h>

#define PACKED_CHUNK 128  // columns at a time
#define PACKED_FEW   4    // rows
#define PACKED_FAR   4096 // bytes of the weight that are on their way to the second cache

// Columns of one group of two panels.
typedef struct packed_chunk {
    const uint8_t *codes; // at the first step
    int64_t panel_bytes;  // from one panel to the other
    const float *zeros;   // [PACKED_WIDTH], PACKED_WHOLE more than the zero points
    const uint8_t *table; // [PACKED_TABLE]
    const float *x;       // [columns][rows]; of bf16 pairs of columns
    float *sums;          // [PACKED_WIDTH / PANEL][rows][PANEL]
    int64_t steps;
    int64_t is_first; // the sums begin at zero, otherwise where they are
} packed_chunk;

// What is compiled for: so many rows by vectors [first, first + vectors) of the panels.
typedef struct packed_shape {
    packed_kind kind;
    int product; // TIMES_F32 or DOT_BF16
    int rows;
    int first;
    int vectors;
} packed_shape;

#define PACKED_VECTORS (PACKED_WIDTH / BERTH_LANES)

typedef berth_vec packed_vectors[PACKED_VECTORS];
typedef berth_vec packed_sums[PACKED_FEW][PACKED_VECTORS];

// The codes of a step for the outputs of vector `index`.
BERTH_INLINE const uint8_t *packed_at(packed_kind kind, const packed_chunk *of, int64_t step,
                                      int index) {
    const int output = index * BERTH_LANES;
    return of->codes + output / PANEL * of->panel_bytes +
           (step * PANEL + output % PANEL) * packed_bytes_of(kind);
}

// A pair of a step, for vectors [first, first + vectors), both even.
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

// ---- a few rows ---------------------------------------------------------------------------------

BERTH_INLINE float *packed_sum_at(float *sums, packed_shape shape, int row, int i) {
    const int output = (shape.first + i) * BERTH_LANES;
    return sums + (output / PANEL * shape.rows + row) * PANEL + output % PANEL;
}

// Adds the products of one word of x for every row.
BERTH_INLINE void packed_add(packed_shape shape, packed_sums sums, packed_vectors weights,
                             const float *x) {
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        const berth_vec value = berth_vec_of_bits(x + row);
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            sums[row][i] = add_product(shape.product, sums[row][i], weights[i], value);
        }
    }
}

BERTH_INLINE void packed_add_step(packed_shape shape, packed_sums sums, const packed_chunk *of,
                                  int64_t step) {
    const int words = packed_columns(shape.kind) / (shape.product == DOT_BF16 ? 2 : 1);
    packed_vectors weights;
    BERTH_UNROLL
    for (int word = 0; word < words; ++word) {
        if (shape.product == DOT_BF16) {
            packed_pairs(shape, of, step, word, weights);
        } else {
            BERTH_UNROLL
            for (int i = 0; i < shape.vectors; ++i) {
                const int index = shape.first + i;
                weights[i] = packed_number(shape.kind, packed_at(shape.kind, of, step, index), word,
                                           berth_vec_load(of->zeros + index * BERTH_LANES));
            }
        }
        packed_add(shape, sums, weights, of->x + (step * words + word) * shape.rows);
    }
}

// Arithmetic takes so long that the processor's own fetching falls behind.
BERTH_INLINE void packed_prefetch(packed_shape shape, const packed_chunk *of, int64_t step) {
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        const uint8_t *codes = packed_at(shape.kind, of, step, shape.first + i);
        if ((shape.first + i) * BERTH_LANES * packed_bytes_of(shape.kind) % 64 == 0) {
            BERTH_PREFETCH_FAR(codes + PACKED_FAR);
        }
    }
}

BERTH_INLINE void packed_multiply(packed_shape shape, const packed_chunk *all) {
    const packed_chunk of = *all;
    packed_sums sums;
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            sums[row][i] = of.is_first ? berth_vec_of(0)
                                       : berth_vec_load(packed_sum_at(of.sums, shape, row, i));
        }
    }
    for (int64_t step = 0; step < of.steps; ++step) {
        packed_prefetch(shape, &of, step);
        packed_add_step(shape, sums, &of, step);
    }
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            berth_vec_store(packed_sum_at(of.sums, shape, row, i), sums[row][i]);
        }
    }
}

// So many sums as can be added at once, and as fit in any set's registers.
#define PACKED_TILE(product, kind, rows)                                                           \
    static void product##_##kind##_##rows(const packed_chunk *of) {                                \
        enum {                                                                                     \
            FIT = BERTH_TILE_ROWS * 4 / 3 / ((rows) == 3 ? 4 : (rows)),                            \
            VECTORS = FIT < PACKED_VECTORS ? FIT : PACKED_VECTORS                                  \
        };                                                                                         \
        for (int first = 0; first < PACKED_VECTORS; first += VECTORS) {                            \
            packed_multiply((packed_shape){kind, product, rows, first, VECTORS}, of);              \
        }                                                                                          \
    }
#define PACKED_TILES(product, kind)                                                                \
    PACKED_TILE(product, kind, 1)                                                                  \
    PACKED_TILE(product, kind, 2)                                                                  \
    PACKED_TILE(product, kind, 3)                                                                  \
    PACKED_TILE(product, kind, 4)
PACKED_TILES(TIMES_F32, PACKED_U4)
PACKED_TILES(TIMES_F32, PACKED_U8)
PACKED_TILES(TIMES_F32, PACKED_E2M1)
PACKED_TILES(TIMES_F32, PACKED_E4M3)
PACKED_TILES(DOT_BF16, PACKED_U4)
PACKED_TILES(DOT_BF16, PACKED_U8)
PACKED_TILES(DOT_BF16, PACKED_E4M3)

#define PACKED_ROW(product, kind)                                                                  \
    [kind] = {NULL, product##_##kind##_1, product##_##kind##_2, product##_##kind##_3,              \
              product##_##kind##_4}

typedef void (*packed_fn)(const packed_chunk *of);

static const packed_fn packed_few[][PACKED_E4M3 + 1][PACKED_FEW + 1] = {
    [TIMES_F32] = {PACKED_ROW(TIMES_F32, PACKED_U4), PACKED_ROW(TIMES_F32, PACKED_U8),
                   PACKED_ROW(TIMES_F32,                                                                         PACKED_E2M1),                  PACKED_ROW(TIMES_F32, PACKED_E4M3)},
    [DOT_BF16] = {PACKED_ROW(DOT_BF16,        PACKED_U4),                  PACKED_ROW(DOT_BF16,                    PACKED_U8),
                   PACKED_ROW(DOT_BF16, PACKED_E4M3)},
};

// ---- many rows ----------------------------------------------------------------------------------

#define PACKED_WIDENED ((int64_t)PACKED_CHUNK * PACKED_WIDTH) // floats of a widened chunk

// To panels of linear, one behind the other.
BERTH_INLINE void packed_widen_as(packed_kind kind, int product, const packed_chunk *of,
                                  float *to) {
    const packed_shape all = {kind, product, 1, 0, PACKED_VECTORS};
    const int words = packed_columns(kind) / (product == DOT_BF16 ? 2 : 1);
    for (int64_t step = 0; step < of->steps; ++step) {
        for (int word = 0; word < words; ++word) {
            packed_vectors weights;
            if (product == DOT_BF16) {
                packed_pairs(all, of, step, word, weights);
            }
            for (int i = 0; i < PACKED_VECTORS; ++i) {
                const int output = i * BERTH_LANES;
                float *line =
                    to + (output / PANEL * of->steps * words + step * words + word) * PANEL;
                const berth_vec zeros = berth_vec_load(of->zeros + output);
                berth_vec_store(
                    line + output % PANEL,
                    product == DOT_BF16
                        ? weights[i]
                        : packed_number(kind, packed_at(kind, of, step, i), word, zeros));
            }
        }
    }
}

static void packed_widen(packed_kind kind, int product, const packed_chunk *of, float *to) {
    if (product == DOT_BF16) {
        kind == PACKED_U4   ? packed_widen_as(PACKED_U4, DOT_BF16, of, to)
        : kind == PACKED_U8 ? packed_widen_as(PACKED_U8, DOT_BF16, of, to)
                            : packed_widen_as(PACKED_E4M3, DOT_BF16, of, to);
    } else if (kind == PACKED_U4) {
        packed_widen_as(PACKED_U4, TIMES_F32, of, to);
    } else if (kind == PACKED_U8) {
        packed_widen_as(PACKED_U8, TIMES_F32, of, to);
    } else if (kind == PACKED_E2M1) {
        packed_widen_as(PACKED_E2M1, TIMES_F32, of, to);
    } else {
        packed_widen_as(PACKED_E4M3, TIMES_F32, of, to);
    }
}

// ---- integers -----------------------------------------------------------------------------------

#define TILE_BYTES(rows) TILE(DOT_BYTES, rows)
#define TILE_WORDS(rows) TILE(DOT_WORDS, rows)
BERTH_TILE_HEIGHTS(TILE_BYTES)
BERTH_TILE_HEIGHTS(TILE_WORDS)

#define ROW_BYTES(rows) [rows] = DOT_BYTES_##rows,
#define ROW_WORDS(rows) [rows] = DOT_WORDS_##rows,

static const tile_fn packed_integers[2][BERTH_TILE_ROWS + 1] = {
    {BERTH_TILE_HEIGHTS(ROW_BYTES)},
    {BERTH_TILE_HEIGHTS(ROW_WORDS)},
};

#endif
