// SPDX-License-Identifier: Apache-2.0
// The arithmetic of paged_attention: panels of keys or of values of one head, as floats, times a
// few rows of queries or of weights. A panel is packed for all rows, and stays in the first cache:
//
//   keys    [width][WIDE keys]
//   values  [KEYS][WIDE columns], zeros behind the last column
//
// A score is one sum over the columns in their order, a weighted sum of values one over the keys in
// theirs, whatever is computed beside them: so no result depends on its neighbours.
#ifndef BERTH_KERNELS_CPU_ATTENTION_TILE_H
#define BERTH_KERNELS_CPU_ATTENTION_TILE_H

#include <cpu/cpu.h>
#include <cpu/fp8_codes.h>
#include <cpu/simd.h>

#include <berth/types.h>

#include <tensor.h>

#define KEYS 64                // of a tile, which begins at a multiple of them
#define WIDE (2 * BERTH_LANES) // floats of a line of a panel

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t greatest(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t pieces(int64_t count, int64_t of) {
    return (count + of - 1) / of;
}

// ---- panels -------------------------------------------------------------------------------------

// Where the rows of a tile are: `offset` bytes behind each of these.
typedef struct tile_rows {
    const char *at[KEYS];
    int64_t offset;
    float scale; // of codes, as vec_load_f8 wants it
} tile_rows;

BERTH_INLINE const char *tile_row(const tile_rows *self, int64_t line) {
    return self->at[line] + self->offset;
}

// Columns of a line from `first` on, BERTH_LANES at most.
BERTH_INLINE berth_vec tile_load(const tile_rows *self, int64_t line, berth_dtype dtype,
                                 int64_t first, int64_t end) {
    const char *row = tile_row(self, line);
    return dtype == BERTH_DTYPE_F8_E4M3FN
               ? vec_load_f8((const uint8_t *)row, first, end, self->scale)
               : berth_vec_load_some(row, dtype, first, end);
}

// BERTH_LANES columns of as many keys.
BERTH_INLINE void pack_columns(const tile_rows *rows, int64_t from, berth_dtype dtype,
                               berth_span columns, float *to) {
    const int64_t first = columns.first;
    berth_vec block[BERTH_LANES];
    BERTH_UNROLL
    for (int key = 0; key < BERTH_LANES; ++key) {
        block[key] = tile_load(rows, from + key, dtype, first, columns.end);
    }
    berth_vec_transpose(block);
    BERTH_UNROLL
    for (int column = 0; column < BERTH_LANES; ++column) {
        if (first + column < columns.end) {
            berth_vec_store(to + (first + column) * WIDE, block[column]);
        }
    }
}

// Twice as many columns of bf16: pairs are transposed, then taken apart.
BERTH_INLINE void pack_pairs(const tile_rows *rows, int64_t from, int64_t first, float *to) {
    berth_vec block[BERTH_LANES];
    BERTH_UNROLL
    for (int key = 0; key < BERTH_LANES; ++key) {
        block[key] = berth_vec_load(tile_row(rows, from + key) + first * 2);
    }
    berth_vec_transpose(block);
    BERTH_UNROLL
    for (int pair = 0; pair < BERTH_LANES; ++pair) {
        float *line = to + (first + 2 * pair) * WIDE;
        berth_vec_store(line, berth_vec_first_of(block[pair]));
        berth_vec_store(line + WIDE, berth_vec_second_of(block[pair]));
    }
}

// Lines [first, first + WIDE) of a tile. What nobody sees there need only be readable.
BERTH_INLINE void pack_keys_as(const tile_rows *rows, int64_t first, berth_dtype dtype,
                               int64_t width, float *to) {
    for (int64_t key = 0; key < WIDE; key += BERTH_LANES) {
        int64_t column = 0;
        for (; dtype == BERTH_DTYPE_BF16 && column + WIDE <= width; column += WIDE) {
            pack_pairs(rows, first + key, column, to + key);
        }
        for (; column < width; column += BERTH_LANES) {
            pack_columns(rows, first + key, dtype, (berth_span){column, width}, to + key);
        }
    }
}

// Columns [first, first + WIDE) of a row that ends at columns.end, of some lines of a tile.
BERTH_INLINE void pack_values_as(const tile_rows *rows, berth_span lines, berth_dtype dtype,
                                 berth_span columns, float *to) {
    const int64_t first = columns.first;
    const int64_t second = first + BERTH_LANES;
    for (int64_t line = lines.first; line < lines.end; ++line) {
        berth_vec_store(to + line * WIDE, tile_load(rows, line, dtype, first, columns.end));
        berth_vec_store(to + line * WIDE + BERTH_LANES,
                        tile_load(rows, line, dtype, second, columns.end));
    }
}

static inline void pack_keys(const tile_rows *rows, int64_t first, berth_dtype dtype, int64_t width,
                             float *to) {
    if (dtype == BERTH_DTYPE_F32) {
        pack_keys_as(rows, first, BERTH_DTYPE_F32, width, to);
    } else if (dtype == BERTH_DTYPE_BF16) {
        pack_keys_as(rows, first, BERTH_DTYPE_BF16, width, to);
    } else if (dtype == BERTH_DTYPE_F8_E4M3FN) {
        pack_keys_as(rows, first, BERTH_DTYPE_F8_E4M3FN, width, to);
    } else {
        pack_keys_as(rows, first, BERTH_DTYPE_F16, width, to);
    }
}

static inline void pack_values(const tile_rows *rows, berth_span lines, berth_dtype dtype,
                               berth_span columns, float *to) {
    if (dtype == BERTH_DTYPE_F32) {
        pack_values_as(rows, lines, BERTH_DTYPE_F32, columns, to);
    } else if (dtype == BERTH_DTYPE_BF16) {
        pack_values_as(rows, lines, BERTH_DTYPE_BF16, columns, to);
    } else if (dtype == BERTH_DTYPE_F8_E4M3FN) {
        pack_values_as(rows, lines, BERTH_DTYPE_F8_E4M3FN, columns, to);
    } else {
        pack_values_as(rows, lines, BERTH_DTYPE_F16, columns, to);
    }
}

// ---- products -----------------------------------------------------------------------------------

typedef berth_vec panel_sums[BERTH_TILE_ROWS][2];

// Where x(k, row) is found: k · line + row · row behind `from`.
typedef struct multipliers {
    const float *from;
    int64_t line;
    int64_t row;
} multipliers;

// sums[row] += x(k, row) · line k, one line after the other. The number of rows is constant where
// this is inlined, so that the sums are registers.
BERTH_INLINE void add_lines(panel_sums sums, int rows, const float *lines, int64_t count,
                            multipliers x) {
    for (int64_t k = 0; k < count; ++k, lines += WIDE, x.from += x.line) {
        const berth_vec first = berth_vec_load(lines);
        const berth_vec second = berth_vec_load(lines + BERTH_LANES);
        BERTH_UNROLL
        for (int row = 0; row < rows; ++row) {
            const berth_vec value = berth_vec_of(x.from[row * x.row]);
            sums[row][0] = berth_vec_add_product(sums[row][0], first, value);
            sums[row][1] = berth_vec_add_product(sums[row][1], second, value);
        }
    }
}

// Scores [rows, KEYS] of the keys of a panel; query: [width][rows].
BERTH_INLINE void score(int rows, const float *panel, int64_t width, const float *query,
                        float *scores) {
    panel_sums sums;
    BERTH_UNROLL
    for (int row = 0; row < rows; ++row) {
        sums[row][0] = berth_vec_of(0);
        sums[row][1] = berth_vec_of(0);
    }
    add_lines(sums, rows, panel, width, (multipliers){query, .line = rows, .row = 1});
    BERTH_UNROLL
    for (int row = 0; row < rows; ++row) {
        berth_vec_store(scores + row * KEYS, sums[row][0]);
        berth_vec_store(scores + row * KEYS + BERTH_LANES, sums[row][1]);
    }
}

// One panel of values: `count` keys of it, their weights [rows, KEYS], and the sums of the panel's
// columns, whose rows are `stride` floats apart.
typedef struct weighing {
    const float *panel;
    int64_t count;
    const float *weights;
    float *sums;
    int64_t stride;
} weighing;

BERTH_INLINE void weigh(int rows, const weighing *of) {
    panel_sums sums;
    BERTH_UNROLL
    for (int row = 0; row < rows; ++row) {
        sums[row][0] = berth_vec_load(of->sums + row * of->stride);
        sums[row][1] = berth_vec_load(of->sums + row * of->stride + BERTH_LANES);
    }
    add_lines(sums, rows, of->panel, of->count, (multipliers){of->weights, .line = 1, .row = KEYS});
    BERTH_UNROLL
    for (int row = 0; row < rows; ++row) {
        berth_vec_store(of->sums + row * of->stride, sums[row][0]);
        berth_vec_store(of->sums + row * of->stride + BERTH_LANES, sums[row][1]);
    }
}

#define SCORE(rows)                                                                                \
    static void score_##rows(const float *panel, int64_t width, const float *query,                \
                             float *scores) {                                                      \
        score(rows, panel, width, query, scores);                                                  \
    }
#define WEIGH(rows)                                                                                \
    static void weigh_##rows(const weighing *of) {                                                 \
        weigh(rows, of);                                                                           \
    }
BERTH_TILE_HEIGHTS(SCORE)
BERTH_TILE_HEIGHTS(WEIGH)

#define SCORE_ROW(rows) [rows] = score_##rows,
#define WEIGH_ROW(rows) [rows] = weigh_##rows,

static void (*const scores_of[BERTH_TILE_ROWS + 1])(const float *panel, int64_t width,
                                                    const float *query, float *scores) = {
    BERTH_TILE_HEIGHTS(SCORE_ROW)};
static void (*const weigh_values[BERTH_TILE_ROWS + 1])(const weighing *of) = {
    BERTH_TILE_HEIGHTS(WEIGH_ROW)};

#endif
