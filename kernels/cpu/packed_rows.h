// SPDX-License-Identifier: Apache-2.0
// The sums of many rows of x with one group of two panels of codes, chunk by chunk: widened once
// for all rows, or as the integers that they are.
#ifndef BERTH_KERNELS_CPU_PACKED_ROWS_H
#define BERTH_KERNELS_CPU_PACKED_ROWS_H

#include <cpu/packed_job.h>
#include <cpu/packed_widen.h>

#define PACKED_AHEAD 8192 // bytes of the weight, when it is read once
#define PACKED_BLOCK 128  // steps of integers at a time, with more rows than a tile has
#define PACKED_GROUP 4    // pairs of panels that take turns with a chunk of x

// ---- multiplying --------------------------------------------------------------------------------

// Scratch of a part.
typedef struct packed_room {
    float *totals; // [PACKED_GROUP][PACKED_WIDTH / PANEL][rows][PANEL]
    float *sums;   // the same, of a group of columns
    float *zeros;  // [PACKED_GROUP][PACKED_WIDTH], as packed_zeros has them; of integers what is
                   // added to sums
    float *widened;
} packed_room;

static inline int64_t packed_room_floats(int64_t rows) {
    return PACKED_GROUP * (2 * rows * PACKED_WIDTH + PACKED_WIDTH) + PACKED_WIDENED;
}

static inline packed_room packed_room_at(float *memory, int64_t rows) {
    packed_room room = {.totals = memory};
    room.sums = room.totals + PACKED_GROUP * rows * PACKED_WIDTH;
    room.zeros = room.sums + PACKED_GROUP * rows * PACKED_WIDTH;
    room.widened = room.zeros + PACKED_GROUP * PACKED_WIDTH;
    return room;
}

// Steps of one group of columns of some pairs of panels.
typedef struct packed_span {
    const uint8_t *codes; // of the first pair
    int64_t count;        // of them
    berth_span steps;
    const packed_room *room;
} packed_span;

// The sums of a panel, `panel` of both of pair `pair`.
static inline float *packed_sums_at(const packed_job *in, float *sums, int64_t pair,
                                    int64_t panel) {
    return sums + (pair * PACKED_WIDTH / PANEL + panel) * in->rows * PANEL;
}

// All rows with steps of a panel that are as linear has them. `piece` knows these.
static inline void packed_blocks(const packed_job *in, tile piece, int64_t step) {
    const int product = in->self->product;
    const int64_t height = tile_height(product, in->rows);
    float *const sums = piece.sums;
    for (int64_t row = 0; row < in->rows; row += height) {
        piece.rows = at_most(height, in->rows - row);
        piece.x = in->x + row * packed_x_words(in->self) + step * in->self->step_words * piece.rows;
        piece.sums = sums + row * PANEL;
        packed_tile_of(product, piece.rows)(&piece);
        piece.next += piece.pairs * piece.next_step;
    }
}

// Some steps of both panels of a pair.
static inline void packed_pair_by_integers(const packed_job *in, const packed_span *of,
                                           int64_t pair, berth_span steps) {
    const packed *self = in->self;
    const int64_t line = line_bytes(DOT_BYTES);
    const int64_t blocks = pieces(in->rows, tile_height(self->product, in->rows));
    const int64_t ahead = blocks == 1 ? PACKED_AHEAD : (steps.end - steps.first) * line;
    for (int64_t panel = 0; panel < PACKED_WIDTH / PANEL; ++panel) {
        const char *codes = (const char *)of->codes + pair * self->panels_bytes +
                            panel * self->panels_bytes / 2 + steps.first * line;
        packed_blocks(in,
                      (tile){
                          .weight = codes,
                          .sums = packed_sums_at(in, of->room->sums, pair, panel),
                          .next = codes + ahead,
                          .next_step = line / blocks,
                          .pairs = steps.end - steps.first,
                          .half = tile_half(in->rows),
                          .is_first = steps.first == of->steps.first,
                          .places_way = self->places_way,
                      },
                      steps.first);
    }
}

static inline void packed_by_integers(const packed_job *in, const packed_span *of) {
    const int product = in->self->product;
    const int64_t most = in->rows <= tile_height(product, in->rows) ? of->steps.end
                         : is_matrix(product)                       ? 2 * PACKED_BLOCK
                                                                    : PACKED_BLOCK;
    for (int64_t step = of->steps.first; step < of->steps.end; step += most) {
        const berth_span steps = {step, at_most(step + most, of->steps.end)};
        for (int64_t pair = 0; pair < of->count; ++pair) {
            packed_pair_by_integers(in, of, pair, steps);
        }
    }
}

// All rows with a chunk of a pair that begins at a step, widened once.
static inline void packed_by_widened(const packed_job *in, const packed_span *of, int64_t pair,
                                     int64_t step, const packed_chunk *chunk) {
    const packed *self = in->self;
    const float *zeros = of->room->zeros + pair * PACKED_WIDTH;
    float *widened = of->room->widened;
    const int64_t pairs =
        chunk->steps * packed_columns(self->kind) / packed_pair_columns(self->product);
    const int64_t line = line_bytes(self->product) / (int64_t)sizeof(float);
    packed_widen(self, chunk, zeros, widened);
    for (int64_t panel = 0; panel < PACKED_WIDTH / PANEL; ++panel) {
        const char *weight = (const char *)(widened + panel * pairs * line);
        packed_blocks(in,
                      (tile){
                          .weight = weight,
                          .sums = packed_sums_at(in, of->room->sums, pair, panel),
                          .next = weight,
                          .pairs = pairs,
                          .half = tile_half(in->rows),
                          .is_first = step == of->steps.first,
                      },
                      step);
    }
}

// Steps of two panels from `step` on.
static inline packed_chunk packed_chunk_of(const packed_job *in, const uint8_t *codes,
                                           berth_span steps) {
    const packed *self = in->self;
    const int64_t before = steps.first * packed_bytes_of(self->kind) * PACKED_WIDTH;
    return (packed_chunk){
        .codes = codes + before,
        .table = self->table,
        .x = in->x + steps.first * self->step_words * in->rows,
        .steps = steps.end - steps.first,
        .places_way = self->places_way,
    };
}

static inline void packed_by_codes(const packed_job *in, const packed_span *of) {
    const int64_t most = packed_widened_steps(in->self);
    for (int64_t step = of->steps.first; step < of->steps.end; step += most) {
        const berth_span steps = {step, at_most(step + most, of->steps.end)};
        for (int64_t pair = 0; pair < of->count; ++pair) {
            const packed_chunk chunk =
                packed_chunk_of(in, of->codes + pair * in->self->panels_bytes, steps);
            packed_by_widened(in, of, pair, step, &chunk);
        }
    }
}

#endif
