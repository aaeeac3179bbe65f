// SPDX-License-Identifier: Apache-2.0
// The sums of many rows of x with one group of two panels of codes, chunk by chunk: widened once
// for all rows, or as the integers that they are.
#ifndef BERTH_KERNELS_CPU_PACKED_ROWS_H
#define BERTH_KERNELS_CPU_PACKED_ROWS_H

#include <cpu/packed_job.h>

#define PACKED_AHEAD 8192 // bytes of the weight, when it is read once
#define PACKED_BLOCK 128  // steps of integers at a time, with more rows than a tile has

// ---- widening -----------------------------------------------------------------------------------

#define PACKED_WIDENED ((int64_t)PACKED_CHUNK * PACKED_WIDTH) // floats of a widened chunk

// To panels of linear, one behind the other.
BERTH_INLINE void packed_widen_as(packed_kind kind, int product, const packed_chunk *of,
                                  const float *zeros, float *to) {
    const packed_shape all = {kind, product, 1, 0, PACKED_VECTORS};
    const int words = packed_columns(kind) / (product == DOT_BF16 ? 2 : 1);
    for (int64_t step = 0; step < of->steps; ++step) {
        packed_prefetch(all, of, step);
        for (int word = 0; word < words; ++word) {
            packed_vectors weights;
            if (product == DOT_BF16) {
                packed_pairs(all, of, step, word, weights);
                packed_settle(all, weights);
            }
            for (int i = 0; i < PACKED_VECTORS; ++i) {
                const int output = i * BERTH_LANES;
                float *line =
                    to + (output / PANEL * of->steps * words + step * words + word) * PANEL;
                const berth_vec less = berth_vec_load(zeros + output);
                berth_vec_store(
                    line + output % PANEL,
                    product == DOT_BF16
                        ? weights[i]
                        : packed_number(kind, packed_at(kind, of, step, i), word, less));
            }
        }
    }
}

// `zeros`: [PACKED_WIDTH], as packed_zeros has them.
static void packed_widen(packed_kind kind, const packed_chunk *of, const float *zeros, float *to) {
    if (kind == PACKED_U4) {
        packed_widen_as(PACKED_U4, TIMES_F32, of, zeros, to);
    } else if (kind == PACKED_U8) {
        packed_widen_as(PACKED_U8, TIMES_F32, of, zeros, to);
    } else if (kind == PACKED_E2M1) {
        packed_widen_as(PACKED_E2M1, TIMES_F32, of, zeros, to);
    } else {
        packed_widen_as(PACKED_E4M3, TIMES_F32, of, zeros, to);
    }
}

static void packed_widen_pairs(packed_kind kind, const packed_chunk *of, const float *zeros,
                               float *to) {
    if (kind == PACKED_U4) {
        packed_widen_as(PACKED_U4, DOT_BF16, of, zeros, to);
    } else if (kind == PACKED_U8) {
        packed_widen_as(PACKED_U8, DOT_BF16, of, zeros, to);
    } else {
        packed_widen_as(PACKED_E4M3, DOT_BF16, of, zeros, to);
    }
}

// ---- multiplying --------------------------------------------------------------------------------

// Scratch of a part.
typedef struct packed_room {
    float *totals; // [PACKED_WIDTH / PANEL][rows][PANEL]
    float *sums;   // the same, of a group
    float *zeros;  // [PACKED_WIDTH], as packed_zeros has them; of integers what is added to sums
    float *widened;
} packed_room;

#define PACKED_ROOM                                                                                \
    ((int64_t)2 * PACKED_ROWS * PACKED_WIDTH + PACKED_WIDTH + PACKED_WIDENED) // floats

// All rows with steps of a panel that are as linear has them. `piece` knows these.
static inline void packed_blocks(const packed_job *in, tile piece, int64_t step,
                                 tile_fn const *of) {
    const int64_t height = panel_height(in->rows);
    float *const sums = piece.sums;
    for (int64_t row = 0; row < in->rows; row += height) {
        const int64_t rows = at_most(height, in->rows - row);
        piece.x = in->x + row * packed_x_words(in->self) + step * in->self->step_words * rows;
        piece.sums = sums + row * PANEL;
        of[rows](&piece);
        piece.next += piece.pairs * piece.next_step;
    }
}

// Steps of one group of two panels.
typedef struct packed_span {
    const uint8_t *codes; // of the panels
    berth_span steps;
    const packed_room *room;
} packed_span;

static inline void packed_by_integers(const packed_job *in, const packed_span *of) {
    const int64_t line = line_bytes(DOT_BYTES);
    const int64_t blocks = pieces(in->rows, panel_height(in->rows));
    const int64_t most = blocks == 1 ? of->steps.end : PACKED_BLOCK;
    const tile_fn *tiles_of = packed_integers[in->self->product == DOT_WORDS];
    for (int64_t step = of->steps.first; step < of->steps.end; step += most) {
        const int64_t steps = at_most(most, of->steps.end - step);
        for (int64_t panel = 0; panel < PACKED_WIDTH / PANEL; ++panel) {
            const uint8_t *codes = of->codes + panel * in->self->panels_bytes / 2 + step * line;
            packed_blocks(
                in,
                (tile){
                    .weight = (const char *)codes,
                    .sums = of->room->sums + panel * in->rows * PANEL,
                    .next = (const char *)codes + (blocks == 1 ? PACKED_AHEAD : steps * line),
                    .next_step = line / blocks,
                    .pairs = steps,
                    .is_first = step == of->steps.first,
                    .in_places = in->self->cpu->places_win > 0,
                },
                step, tiles_of);
        }
    }
}

// All rows with a chunk that begins at a step, widened once.
static inline void packed_by_widened(const packed_job *in, const packed_span *of, int64_t step,
                                     const packed_chunk *chunk) {
    const packed *self = in->self;
    float *widened = of->room->widened;
    const int64_t pairs = chunk->steps * packed_columns(self->kind) / 2;
    const int64_t line = line_bytes(self->product) / (int64_t)sizeof(float);
    if (self->product == DOT_BF16) {
        packed_widen_pairs(self->kind, chunk, of->room->zeros, widened);
    } else {
        packed_widen(self->kind, chunk, of->room->zeros, widened);
    }
    for (int64_t panel = 0; panel < PACKED_WIDTH / PANEL; ++panel) {
        const char *weight = (const char *)(widened + panel * pairs * line);
        packed_blocks(in,
                      (tile){
                          .weight = weight,
                          .sums = of->room->sums + panel * in->rows * PANEL,
                          .next = weight,
                          .pairs = pairs,
                          .is_first = step == of->steps.first,
                      },
                      step, tiles[self->product]);
    }
}

// Steps of two panels from `step` on.
static inline packed_chunk packed_chunk_of(const packed_job *in, const uint8_t *codes,
                                           berth_span steps) {
    const packed *self = in->self;
    return (packed_chunk){
        .codes = codes + steps.first * packed_bytes_of(self->kind) * PACKED_WIDTH,
        .table = self->table,
        .x = in->x + steps.first * self->step_words * in->rows,
        .steps = steps.end - steps.first,
        .in_places = in->self->cpu->places_win > 0,
    };
}

static inline void packed_by_codes(const packed_job *in, const packed_span *of) {
    const int64_t most = PACKED_CHUNK / packed_columns(in->self->kind);
    for (int64_t step = of->steps.first; step < of->steps.end; step += most) {
        const berth_span steps = {step, at_most(step + most, of->steps.end)};
        const packed_chunk chunk = packed_chunk_of(in, of->codes, steps);
        packed_by_widened(in, of, step, &chunk);
    }
}

#endif
