// SPDX-License-Identifier: Apache-2.0
// The tiles of packed_tile.h as they are compiled: for each kind of codes, product and number of
// rows a function, in tables.
#ifndef BERTH_KERNELS_CPU_PACKED_TILES_H
#define BERTH_KERNELS_CPU_PACKED_TILES_H

#include <cpu/linear_matrix.h>
#include <cpu/packed_e4m3.h>

// ---- floats, bf16 and words ---------------------------------------------------------------------

#define PACKED_TILE(product, kind, rows)                                                           \
    static void product##_##kind##_##rows(const packed_chunk *of, const packed_groups *by,         \
                                          int64_t steps) {                                         \
        enum { VECTORS = PACKED_FIT(rows) };                                                       \
        for (int first = 0; first < PACKED_VECTORS; first += VECTORS) {                            \
            packed_multiply((packed_shape){kind, product, rows, first, VECTORS}, of, by, steps);   \
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
PACKED_TILES(DOT_WORDS, PACKED_U4)
PACKED_TILES(DOT_WORDS, PACKED_E2M1)
PACKED_TILES(DOT_BF16, PACKED_U4)
PACKED_TILES(DOT_BF16, PACKED_U8)
PACKED_TILES(DOT_BF16, PACKED_E4M3)

#define PACKED_ROW(product, kind)                                                                  \
    [kind] = {NULL, product##_##kind##_1, product##_##kind##_2, product##_##kind##_3,              \
              product##_##kind##_4}

static const packed_fn packed_floats[][PACKED_FEW + 1] = {
    PACKED_ROW(TIMES_F32, PACKED_U4),
    PACKED_ROW(TIMES_F32, PACKED_U8),
    PACKED_ROW(TIMES_F32, PACKED_E2M1),
    [PACKED_E4M3] = {NULL, E4M3_HALVES_1, E4M3_HALVES_2, E4M3_HALVES_3, E4M3_HALVES_4},
};

static const packed_fn packed_shifts[PACKED_FEW + 1] = {
    NULL, E4M3_SHIFTS_1, E4M3_SHIFTS_2, E4M3_SHIFTS_3, E4M3_SHIFTS_4,
};

static const packed_fn packed_words_few[][PACKED_FEW + 1] = {
    PACKED_ROW(DOT_WORDS, PACKED_U4),
    PACKED_ROW(DOT_WORDS, PACKED_E2M1),
};

static const packed_fn packed_dots[][PACKED_FEW + 1] = {
    PACKED_ROW(DOT_BF16, PACKED_U4),
    PACKED_ROW(DOT_BF16, PACKED_U8),
    PACKED_ROW(DOT_BF16, PACKED_E4M3),
};

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

static void matrix_bytes(const tile *self) {
    multiply_block(self, MATRIX_BYTES);
}

// The tile of any product for so many rows.
static inline tile_fn packed_tile_of(int product, int64_t rows) {
    return product == MATRIX_BYTES ? matrix_bytes
           : product == DOT_BYTES || product == DOT_WORDS
               ? packed_integers[product == DOT_WORDS][rows]
               : tile_of(product, rows);
}

#endif
