// SPDX-License-Identifier: Apache-2.0
// Rows of x by one panel of the weight (linear_panel.h) as products of matrices, where the machine
// has them: 16 rows by 16 outputs by a line of columns at once. And what every product has in
// common that decides how x is packed: blocks of so many rows,
//
//   of matrices   [lines][rows][16 words]    what is missing of the last line is zero
//   of others     [words][rows]
//
// A line's sums of bf16 are those of its first and of its second columns, in order, added up at its
// end, subnormal numbers being 0; lines follow each other, however many rows there are.
#ifndef BERTH_KERNELS_CPU_LINEAR_MATRIX_H
#define BERTH_KERNELS_CPU_LINEAR_MATRIX_H

#include <cpu/linear_tile.h>
#include <cpu/transpose.h>

#define MATRIX_WORDS 16                           // of a line
#define MATRIX_BLOCK (2 * BERTH_MATRIX_ROWS)      // rows
#define MATRIX_PAIR  (PANEL * 4)                  // bytes of the weight
#define MATRIX_STEP  (MATRIX_WORDS * MATRIX_PAIR) // of them with a line of x

// ---- how x lies ---------------------------------------------------------------------------------

// Most rows that are multiplied at once, by any product.
#define MOST_TILE_ROWS (MATRIX_BLOCK > BERTH_TILE_ROWS ? MATRIX_BLOCK : BERTH_TILE_ROWS)

// Rows of a block, of which the last may have fewer. Of matrices 16 cost what one does.
static inline int64_t tile_height(int product, int64_t rows) {
    return rows <= 0            ? 1
           : is_matrix(product) ? at_most(rows, MATRIX_BLOCK)
                                : pieces(rows, pieces(rows, BERTH_TILE_ROWS));
}

// Words of a packed row, behind whose block as many lines as a half has rows may be read.
static inline int64_t tile_words(int product, int64_t words) {
    return is_matrix(product) ? pieces(words, MATRIX_WORDS) * MATRIX_WORDS : words;
}

// Words of a packed row of panels of floats.
static inline int64_t panel_floats(int64_t columns, int product) {
    const int64_t pairs = pieces(columns, 2);
    return tile_words(product, is_paired(product) ? pairs : 2 * pairs);
}

// Rows that are packed together, from some words of them on.
typedef struct tile_block {
    float *words;
    int64_t rows;
} tile_block;

// Words `at` of row `row` to their places in a block, whose words begin with the first; of matrices
// they are of one line.
static inline void tile_put(int product, const float *words, berth_span at, int64_t row,
                            tile_block to) {
    const int64_t count = at.end - at.first;
    if (is_matrix(product)) {
        memcpy(to.words + at.first * to.rows + row * MATRIX_WORDS, words,
               (size_t)count * sizeof *words);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        to.words[(at.first + i) * to.rows + row] = words[i];
    }
}

// So many words of all rows, which lie `step` apart, to where the first of them belongs; of
// matrices whole lines.
static inline void tile_pack(int product, const float *words, int64_t step, int64_t count,
                             tile_block to) {
    if (!is_matrix(product)) {
        berth_transpose(words, step, to.rows, count, to.words);
        return;
    }
    for (int64_t word = 0; word < count; word += MATRIX_WORDS) {
        for (int64_t row = 0; row < to.rows; ++row, to.words += MATRIX_WORDS) {
            memcpy(to.words, words + row * step + word, BERTH_LINE);
        }
    }
}

// ---- multiplying --------------------------------------------------------------------------------

// What is compiled for: bytes or pairs of bf16, by both halves of the rows or one.
typedef struct matrix_shape {
    int product;
    int halves;
} matrix_shape;

// The sums of so many rows of a half, of which the registers have `half`.
BERTH_INLINE void matrix_take(const float *sums, int64_t rows, int64_t half, int second) {
    if (rows < half) {
        float all[BERTH_MATRIX_ROWS][PANEL] = {{0}};
        memcpy(all, sums, (size_t)rows * sizeof all[0]);
        berth_matrix_take(all[0], second);
    } else {
        berth_matrix_take(sums, second);
    }
}

BERTH_INLINE void matrix_keep(float *sums, int64_t rows, int64_t half, int second) {
    if (rows < half) {
        float all[BERTH_MATRIX_ROWS][PANEL] = {{0}};
        berth_matrix_keep(all[0], second);
        memcpy(sums, all, (size_t)rows * sizeof all[0]);
    } else {
        berth_matrix_keep(sums, second);
    }
}

// A line of both halves of x with one of the weight, whose pairs are `step` bytes apart.
BERTH_INLINE void matrix_add(matrix_shape shape, const char *weight, int64_t step,
                             const void *const x[2]) {
    const int is_bytes = shape.product == MATRIX_BYTES;
    berth_matrix_weight(weight, step, 0);
    berth_matrix_weight(weight, step, 1);
    for (int second = 0; second < shape.halves; ++second) {
        berth_matrix_x(x[second], second);
        berth_matrix_dot(is_bytes, second, 0);
        berth_matrix_dot(is_bytes, second, 1);
    }
}

// Of a packed block, whose halves lie one behind the other.
BERTH_INLINE void matrix_add_block(matrix_shape shape, const char *weight, const char *x) {
    const void *const halves[] = {x, x + BERTH_MATRIX_ROWS * BERTH_LINE};
    matrix_add(shape, weight, MATRIX_PAIR, halves);
}

// What is wanted next while lines at `at` are multiplied: with one block of rows what this one
// needs in a moment, otherwise its share of what comes after it.
BERTH_INLINE void matrix_fetch(const tile *self, int64_t at) {
    if (self->next_step < MATRIX_PAIR) {
        const char *next = self->next + at / MATRIX_PAIR * self->next_step;
        const int64_t share = self->next_step * MATRIX_WORDS;
        for (int64_t line = 0; line < share; line += BERTH_LINE) {
            BERTH_PREFETCH_FAR(next + line);
        }
        return;
    }
    const int way = places_asked(self->places_way);
    for (int64_t line = 0; line < MATRIX_STEP; line += PLACES * BERTH_LINE) {
        const places_lines ahead =
            places_ahead(self->weight + at + line, way, self->next - self->weight);
        BERTH_UNROLL
        for (int i = 0; i < PLACES; ++i) {
            places_ask(ahead, i);
        }
    }
}

BERTH_INLINE void multiply_lines(const tile *self, matrix_shape shape) {
    const int64_t whole = self->pairs / MATRIX_WORDS * MATRIX_STEP;
    const int64_t rest = self->pairs % MATRIX_WORDS * MATRIX_PAIR;
    const int64_t x_bytes = self->rows * BERTH_LINE;
    const char *x = (const char *)self->x;
    for (int64_t at = 0; at < whole; at += MATRIX_STEP, x += x_bytes) {
        matrix_fetch(self, at);
        matrix_add_block(shape, self->weight + at, x);
    }
    if (rest > 0) {
        _Alignas(BERTH_LINE) char last[MATRIX_STEP];
        memcpy(last, self->weight + whole, (size_t)rest);
        memset(last + rest, 0, sizeof last - (size_t)rest);
        matrix_add_block(shape, last, x);
    }
}

BERTH_INLINE void multiply_matrix(const tile *self, matrix_shape shape) {
    const int64_t first = at_most(self->rows, self->half);
    const int64_t others = self->rows - first;
    float *second = self->sums + first * PANEL;
    if (self->is_first) {
        berth_matrix_zero();
    } else {
        matrix_take(self->sums, first, self->half, 0);
        if (shape.halves > 1) {
            matrix_take(second, others, self->half, 1);
        }
    }
    multiply_lines(self, shape);
    matrix_keep(self->sums, first, self->half, 0);
    if (shape.halves > 1) {
        matrix_keep(second, others, self->half, 1);
    }
}

// A tile's function of a product, for as many rows as a block has.
BERTH_INLINE void multiply_block(const tile *self, int product) {
    if (self->rows > BERTH_MATRIX_ROWS) {
        multiply_matrix(self, (matrix_shape){product, 2});
    } else {
        multiply_matrix(self, (matrix_shape){product, 1});
    }
}

static void matrix_bf16(const tile *self) {
    multiply_block(self, MATRIX_BF16);
}

// The tile of a product of floats for so many rows.
static inline tile_fn tile_of(int product, int64_t rows) {
    return product == MATRIX_BF16 ? matrix_bf16 : tiles[product][rows];
}

// Rows that a half of a block has at most, of so many rows in all.
static inline int64_t tile_half(int64_t rows) {
    return at_most(rows, BERTH_MATRIX_ROWS);
}

// Around what a part multiplies of so many rows.
static inline void tiles_begin(int product, int64_t rows) {
    if (is_matrix(product) && rows > 0) {
        berth_matrix_begin(tile_half(rows));
    }
}

static inline void tiles_end(int product) {
    if (is_matrix(product)) {
        berth_matrix_end();
    }
}

#endif
