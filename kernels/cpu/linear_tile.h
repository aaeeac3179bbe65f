// SPDX-License-Identifier: Apache-2.0
// The arithmetic of linear: a few rows of x times one panel of the weight (linear_panel.h),
// the sums in registers.
//
// Every output is one sum over the columns in their order, however many rows there are beside it,
// whoever computes it: a row's result depends on nothing but the row.
#ifndef BERTH_KERNELS_CPU_LINEAR_TILE_H
#define BERTH_KERNELS_CPU_LINEAR_TILE_H

#include <cpu/linear_panel.h>
#include <cpu/places.h>
#include <cpu/simd.h>

// Bytes of the weight that are on their way to the first cache. Zen 3, one row, of reading: bf16
// 0.80 with 256 bytes, 0.81 with 512, 0.89 with 1024, 0.88 with 2048; int8 0.80, 0.81, 0.87, 0.87.
#define NEAR_BYTES 1024
#define FAR_STEPS  8 // of the arithmetic for a line of the weight, from which on it comes from afar

// How a weight is multiplied: widened to floats from its dtype, or as pairs of bf16 by pairs of x.
// Beyond PRODUCTS are matrices (linear_matrix.h) and integers, whose tiles packed_tiles.h has: a
// pair is four columns there, bytes of the weight by bytes of x, or by words of 16 bits, first the
// even columns, then the odd ones.
enum {
    TIMES_F32,
    TIMES_F16,
    TIMES_BF16,
    DOT_BF16,
    PRODUCTS,
    DOT_BYTES = PRODUCTS,
    DOT_WORDS,
    MATRIX_BF16,
    MATRIX_BYTES,
};

typedef struct tile {
    const char *weight; // a panel, at its first pair of columns that is wanted
    const float *x;     // [pairs][2][rows]; of the products that take a pair at once [pairs][rows];
                        // of matrices as linear_matrix.h has it
    float *sums;        // [rows][PANEL]
    const char *next;   // weight that is wanted later: next_step bytes come nearer with each pair
    int64_t next_step;
    int64_t pairs;
    int64_t rows; // of x, for matrices; and of a half of the largest block
    int64_t half;
    int64_t is_first; // the sums begin at zero, otherwise where they are
    int places_way;   // how few rows ask for later lines (places.h)
} tile;

typedef void (*tile_fn)(const tile *self);

// Whether a pair is multiplied at once.
BERTH_INLINE int is_dot(int product) {
    return product == DOT_BF16 || product == DOT_BYTES;
}

// Whether x is packed as pairs of bf16, and whether it is multiplied as matrices.
BERTH_INLINE int is_paired(int product) {
    return product == DOT_BF16 || product == MATRIX_BF16;
}

BERTH_INLINE int is_matrix(int product) {
    return product == MATRIX_BF16 || product == MATRIX_BYTES;
}

// Bytes of a pair of columns.
BERTH_INLINE int line_bytes(int product) {
    return PANEL * (product == TIMES_F32 ? 8 : 4);
}

// Vector `index` of column `second` of a pair.
BERTH_INLINE berth_vec weight_at(const char *pair, int product, int second, int index) {
    const int64_t output = (int64_t)index * BERTH_LANES;
    const void *wide = pair + (second * PANEL + output) * 4;
    const void *narrow = pair + (second * PANEL + output) * 2;
    const void *both = pair + output * 4;
    if (product == DOT_WORDS) {
        const berth_vec_words bytes = (berth_vec_words)berth_vec_load(both);
        return (berth_vec)(second ? bytes >> 8 : bytes & 0xff);
    }
    return product == TIMES_F32   ? berth_vec_load(wide)
           : product == TIMES_F16 ? berth_vec_load_f16(narrow)
           : is_dot(product)      ? berth_vec_load(both)
           : second               ? berth_vec_second(both)
                                  : berth_vec_first(both);
}

BERTH_INLINE berth_vec add_product(int product, berth_vec sum, berth_vec weight, berth_vec x) {
    const berth_vec_bits a = (berth_vec_bits)weight;
    const berth_vec_bits b = (berth_vec_bits)x;
    return product == DOT_BF16    ? berth_vec_dot(sum, weight, x)
           : product == DOT_BYTES ? (berth_vec)berth_vec_dot_bytes((berth_vec_bits)sum, a, b)
           : product == DOT_WORDS ? (berth_vec)berth_vec_dot_words((berth_vec_bits)sum, a, b)
                                  : berth_vec_add_product(sum, weight, x);
}

// What a tile is compiled for: a product of so many rows by vectors [first, first + vectors) of the
// panel. It is constant wherever the functions below are inlined, so that the sums are registers.
typedef struct tile_shape {
    int product;
    int rows;
    int first;
    int vectors;
} tile_shape;

typedef berth_vec tile_sums[BERTH_TILE_ROWS][PANEL / BERTH_LANES];

// Adds one column of a pair, or both at once as a dot product. x: [rows].
BERTH_INLINE void add_column(tile_shape shape, tile_sums sums, const char *pair, int second,
                             const float *x) {
    berth_vec weights[PANEL / BERTH_LANES];
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        weights[i] = weight_at(pair, shape.product, second, shape.first + i);
    }
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        if (shape.product == DOT_WORDS && shape.vectors == 2) {
            berth_vec_dot_words_of_two(sums[row], weights, x + row);
            continue;
        }
        const berth_vec value = berth_vec_of_bits(x + row);
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            sums[row][i] = add_product(shape.product, sums[row][i], weights[i], value);
        }
    }
}

// Whether the weight is brought into the second cache long before it is wanted. Why not always: the
// processor itself fetches what is read front to back, faster than it can be asked to (33 GB/s to
// 25, measured); as soon as arithmetic takes longer than that it falls behind.
BERTH_INLINE int is_far(tile_shape shape) {
    const int is_widened =
        shape.product == TIMES_BF16 || shape.product == TIMES_F16 || shape.product == DOT_WORDS;
    return shape.rows * (1 + is_widened) >= FAR_STEPS;
}

BERTH_INLINE void add_pairs(const tile *self, tile_shape shape, tile_sums sums) {
    const int bytes = line_bytes(shape.product);
    const int way = is_far(shape) ? PLACES_BEHIND : self->places_way;
    const char *const end = self->weight + self->pairs * bytes;
    const char *next = self->next;
    const float *x = self->x;
    for (const char *pair = self->weight; pair != end; pair += bytes) {
        const places_lines ahead = places_ahead(pair, way, NEAR_BYTES);
        BERTH_UNROLL
        for (int line = 0; line < bytes; line += BERTH_LINE) {
            places_ask(ahead, line / BERTH_LINE);
            if (is_far(shape)) {
                BERTH_PREFETCH_FAR(next + line);
            }
        }
        next += self->next_step;
        add_column(shape, sums, pair, 0, x);
        x += shape.rows;
        if (!is_dot(shape.product)) {
            add_column(shape, sums, pair, 1, x);
            x += shape.rows;
        }
    }
}

// The sums of a shape's vectors, from where they are kept [rows][PANEL] or zero, and back.
BERTH_INLINE void take_sums(const float *kept, int64_t is_first, tile_shape shape, tile_sums sums) {
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            const float *from = kept + row * PANEL + (shape.first + i) * BERTH_LANES;
            sums[row][i] = is_first ? berth_vec_of(0) : berth_vec_load(from);
        }
    }
}

BERTH_INLINE void keep_sums(float *kept, tile_shape shape, tile_sums sums) {
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            berth_vec_store(kept + row * PANEL + (shape.first + i) * BERTH_LANES, sums[row][i]);
        }
    }
}

BERTH_INLINE void multiply(const tile *self, tile_shape shape) {
    tile_sums sums;
    take_sums(self->sums, self->is_first, shape, sums);
    add_pairs(self, shape, sums);
    keep_sums(self->sums, shape, sums);
}

// A single row needs so few registers that it takes the whole panel at once.
#define TILE(product, rows)                                                                        \
    static void product##_##rows(const tile *self) {                                               \
        enum { VECTORS = (rows) == 1 ? PANEL / BERTH_LANES : 2 };                                  \
        for (int first = 0; first < PANEL / BERTH_LANES; first += VECTORS) {                       \
            multiply(self, (tile_shape){product, rows, first, VECTORS});                           \
        }                                                                                          \
    }
#define TILE_F32(rows)  TILE(TIMES_F32, rows)
#define TILE_F16(rows)  TILE(TIMES_F16, rows)
#define TILE_BF16(rows) TILE(TIMES_BF16, rows)
#define TILE_DOT(rows)  TILE(DOT_BF16, rows)
BERTH_TILE_HEIGHTS(TILE_F32)
BERTH_TILE_HEIGHTS(TILE_F16)
BERTH_TILE_HEIGHTS(TILE_BF16)
BERTH_TILE_HEIGHTS(TILE_DOT)

#define ROW_F32(rows)  [rows] = TIMES_F32_##rows,
#define ROW_F16(rows)  [rows] = TIMES_F16_##rows,
#define ROW_BF16(rows) [rows] = TIMES_BF16_##rows,
#define ROW_DOT(rows)  [rows] = DOT_BF16_##rows,

static const tile_fn tiles[PRODUCTS][BERTH_TILE_ROWS + 1] = {
    [TIMES_F32] = {BERTH_TILE_HEIGHTS(ROW_F32)},
    [TIMES_F16] = {BERTH_TILE_HEIGHTS(ROW_F16)},
    [TIMES_BF16] = {BERTH_TILE_HEIGHTS(ROW_BF16)},
    [DOT_BF16] = {BERTH_TILE_HEIGHTS(ROW_DOT)},
};

#endif
