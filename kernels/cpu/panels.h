// SPDX-License-Identifier: Apache-2.0
// Products of rows that a kernel gathers itself by panels of a weight (linear_panel.h), for kernels
// other than linear: experts, whose rows are some of the batch, and convolutions, whose rows are
// patches.
//
// Rows are packed first, by panel_pack, in blocks of tile_height rows; panel_multiply then gives
// the sums of every row with every output of some panels. A row's sums depend on nothing but the
// row: they are added in the order of the columns, whatever else is multiplied beside it.
#ifndef BERTH_KERNELS_CPU_PANELS_H
#define BERTH_KERNELS_CPU_PANELS_H

#include <cpu/cpu.h>

#include <cpu/linear_choice.h>
#include <cpu/linear_panel.h>

#define PANEL_CHUNK 256  // pairs of columns at a time, with many rows
#define PANEL_STEP  64   // fewer with few: so many for every block of rows
#define PANEL_AHEAD 8192 // bytes of the weight, when it is read once
#define PANEL_FEW   64   // rows; with more the panel is widened to floats once
#define PANEL_WORDS 64   // of a row packed at a time

// ---- rows ---------------------------------------------------------------------------------------

// Columns [first, first + count) of a row: floats, or bf16 for a product of pairs.
typedef void (*panel_load_fn)(const void *context, int64_t row, int64_t first, int64_t count,
                              void *to);

// Rows that are to be packed for a product.
typedef struct panel_rows {
    panel_load_fn load; // never asked for a column behind the last
    const void *context;
    int64_t columns;
    int product;
} panel_rows;

// Pairs of floats that are bf16 already to words of two.
static inline void panel_join(const float *pairs, int64_t words, float *to) {
    for (int64_t i = 0; i < words; ++i) {
        const uint32_t first = berth_bits_of_float(pairs[2 * i]) >> 16;
        const uint32_t second = berth_bits_of_float(pairs[2 * i + 1]) & 0xffff0000u;
        to[i] = berth_float_of_bits(first | second);
    }
}

// Words [first, first + count) of a packed row, zero behind the last column.
static inline void panel_words(const panel_rows *from, int64_t row, int64_t first, int64_t count,
                               float *to) {
    const int64_t of_word = is_paired(from->product) ? 2 : 1;
    const int64_t column = first * of_word;
    const int64_t there = at_most(from->columns - column, count * of_word);
    const size_t bytes = (size_t)there * sizeof *to / (size_t)of_word;
    from->load(from->context, row, column, there, to);
    memset((char *)to + bytes, 0, (size_t)count * sizeof *to - bytes);
}

// Rows [first, end), a block, to its place.
static inline void panel_pack(const panel_rows *from, int64_t first, int64_t end, float *to) {
    const int64_t width = panel_floats(from->columns, from->product);
    const int64_t rows = end - first;
    _Alignas(64) float piece[MOST_TILE_ROWS][PANEL_WORDS];
    for (int64_t word = 0; word < width; word += PANEL_WORDS) {
        const int64_t words = at_most(PANEL_WORDS, width - word);
        for (int64_t row = 0; row < rows; ++row) {
            panel_words(from, first + row, word, words, piece[row]);
        }
        tile_pack(from->product, piece[0], PANEL_WORDS, words,
                  (tile_block){to + word * rows, rows});
    }
}

// ---- products -----------------------------------------------------------------------------------

typedef struct panel_work {
    const char *weight; // the panels, one behind the other
    int64_t count;      // of them
    int64_t columns;
    int product;
    const float *x; // packed
    int64_t rows;
    float *sums;    // [count][rows][PANEL]
    float *widened; // [2 * PANEL_CHUNK][PANEL], room
    int places_way; // as a tile has it
} panel_work;

static inline int64_t panel_size(const panel_work *self) {
    return pieces(self->columns, 2) * line_bytes(self->product);
}

// A chunk of a panel as floats: [2 * pairs][PANEL].
static inline const char *panel_widen(const char *pair, int product, int64_t pairs, float *to) {
    for (int64_t i = 0; i < 2 * pairs * PANEL; i += BERTH_LANES) {
        const int64_t column = i / PANEL;
        const char *from = pair + column / 2 * line_bytes(product);
        const int index = (int)(i % PANEL / BERTH_LANES);
        berth_vec_store(to + i, product == TIMES_F16
                                    ? weight_at(from, TIMES_F16, column % 2, index)
                                    : weight_at(from, TIMES_BF16, column % 2, index));
    }
    return (const char *)to;
}

// All rows with a chunk of one panel. `piece` knows the weight, the pairs and the sums.
static inline void panel_chunk(const panel_work *self, tile piece, int product,
                               int64_t first_pair) {
    const int64_t height = tile_height(self->product, self->rows);
    const int64_t blocks = pieces(self->rows, height);
    const int64_t words = panel_floats(self->columns, self->product);
    const int64_t of_pair = is_paired(self->product) ? 1 : 2;
    float *const sums = piece.sums;
    piece.next = piece.weight + (blocks == 1 ? PANEL_AHEAD : piece.pairs * line_bytes(product));
    piece.next_step = line_bytes(product) / blocks;
    for (int64_t row = 0; row < self->rows; row += height) {
        const int64_t rows = at_most(height, self->rows - row);
        piece.x = self->x + row * words + first_pair * of_pair * rows;
        piece.sums = sums + row * PANEL;
        piece.rows = rows;
        tile_of(product, rows)(&piece);
        piece.next += piece.pairs * piece.next_step;
    }
}

static inline void panel_multiply(const panel_work *self) {
    const int64_t pairs = pieces(self->columns, 2);
    const int64_t blocks = pieces(self->rows, tile_height(self->product, self->rows));
    const int64_t step = blocks == 1 ? pairs : at_most(PANEL_STEP * blocks, PANEL_CHUNK);
    const int is_widened =
        self->rows > PANEL_FEW && (self->product == TIMES_BF16 || self->product == TIMES_F16);
    tiles_begin(self->product, self->rows);
    for (int64_t pair = 0; pair < pairs && self->rows > 0; pair += step) {
        for (int64_t panel = 0; panel < self->count; ++panel) {
            tile piece = {
                .weight =
                    self->weight + panel * panel_size(self) + pair * line_bytes(self->product),
                .sums = self->sums + panel * self->rows * PANEL,
                .pairs = at_most(step, pairs - pair),
                .half = tile_half(self->rows),
                .is_first = pair == 0,
                .places_way = self->places_way,
            };
            if (is_widened) {
                piece.weight = panel_widen(piece.weight, self->product, piece.pairs, self->widened);
            }
            panel_chunk(self, piece, is_widened ? TIMES_F32 : self->product, pair);
        }
    }
    tiles_end(self->product);
}

// ---- scratch ------------------------------------------------------------------------------------

// Bytes of `count` floats, so that what stands behind begins on a line.
static inline uint64_t panel_bytes_of(int64_t count) {
    return ((uint64_t)count * sizeof(float) + 63) / 64 * 64;
}

#endif
