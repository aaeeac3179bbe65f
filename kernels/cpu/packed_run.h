// SPDX-License-Identifier: Apache-2.0
// Products by a weight of codes, for packed_linear and scaled_linear, which say what a row of x is
// and which scales there are.
//
// x is packed first, and where the arithmetic needs them the sums of its groups. Then every part of
// the pool takes its share of the panels, group after group: the sums of a group's codes
// (packed_tile.h), then those by the scales of the group. A row's sums are in the same order
// whatever is beside it: its result depends on nothing but the row.
#ifndef BERTH_KERNELS_CPU_PACKED_RUN_H
#define BERTH_KERNELS_CPU_PACKED_RUN_H

#include <cpu/packed_job.h>

#define PACKED_AHEAD 8192 // bytes of the weight, when it is read once
#define PACKED_BLOCK 128  // steps of integers at a time, with more rows than a tile has

// Scratch of a part.
typedef struct packed_room {
    float *totals; // [PACKED_WIDTH / PANEL][rows][PANEL]
    float *sums;   // the same, of a group
    float *zeros;  // [PACKED_WIDTH]
    float *widened;
} packed_room;

#define PACKED_ROOM                                                                                \
    ((int64_t)2 * PACKED_ROWS * PACKED_WIDTH + PACKED_WIDTH + PACKED_WIDENED) // floats

static inline uint64_t packed_workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const packed *self = state;
    return panel_bytes_of(PACKED_ROWS * packed_x_words(self)) +
           2 * panel_bytes_of(PACKED_ROWS * self->groups) +
           (uint64_t)self->cpu->threads * panel_bytes_of(PACKED_ROOM);
}

// ---- multiplying --------------------------------------------------------------------------------

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
            const uint8_t *codes = of->codes + panel * in->self->panel_bytes + step * line;
            packed_blocks(
                in,
                (tile){
                    .weight = (const char *)codes,
                    .sums = of->room->sums + panel * in->rows * PANEL,
                    .next = (const char *)codes + (blocks == 1 ? PACKED_AHEAD : steps * line),
                    .next_step = line / blocks,
                    .pairs = steps,
                    .is_first = step == of->steps.first,
                },
                step, tiles_of);
        }
    }
}

// All rows with a chunk that begins at a step, widened once.
static inline void packed_by_widened(const packed_job *in, const packed_chunk *of, int64_t step,
                                     float *widened) {
    const packed *self = in->self;
    const int64_t pairs = of->steps * packed_columns(self->kind) / 2;
    const int64_t line = line_bytes(self->product) / (int64_t)sizeof(float);
    packed_widen(self->kind, self->product, of, widened);
    for (int64_t panel = 0; panel < PACKED_WIDTH / PANEL; ++panel) {
        const char *weight = (const char *)(widened + panel * pairs * line);
        packed_blocks(in,
                      (tile){
                          .weight = weight,
                          .sums = of->sums + panel * in->rows * PANEL,
                          .next = weight,
                          .pairs = pairs,
                          .is_first = of->is_first,
                      },
                      step, tiles[self->product]);
    }
}

static inline void packed_by_codes(const packed_job *in, const packed_span *of) {
    const packed *self = in->self;
    const int64_t most = PACKED_CHUNK / packed_columns(self->kind);
    for (int64_t step = of->steps.first; step < of->steps.end; step += most) {
        const packed_chunk chunk = {
            .codes = of->codes + step * packed_bytes_of(self->kind) * PANEL,
            .panel_bytes = self->panel_bytes,
            .zeros = of->room->zeros,
            .table = self->table,
            .x = in->x + step * self->step_words * in->rows,
            .sums = of->room->sums,
            .steps = at_most(most, of->steps.end - step),
            .is_first = step == of->steps.first,
        };
        if (in->rows <= PACKED_FEW) {
            packed_few[self->product][self->kind][in->rows](&chunk);
        } else {
            packed_by_widened(in, &chunk, step, of->room->widened);
        }
    }
}

// The sums of a group as numbers; `of_x` is the group's sum of x.
BERTH_INLINE berth_vec packed_take(const packed *self, berth_vec sums, const float *zeros,
                                   float of_x) {
    if (self->kind == PACKED_I8) {
        const uint32_t excess = (uint32_t)((int32_t)of_x * (int32_t)packed_excess(PACKED_I8, 0));
        const berth_vec_bits whole = (berth_vec_bits)sums + packed_bits(zeros) - excess;
        return __builtin_convertvector((berth_vec_ints)whole, berth_vec);
    }
    return self->has_sums ? berth_vec_fma(berth_vec_load(zeros), berth_vec_of(of_x), sums) : sums;
}

static inline void packed_add_group(const packed_job *in, packed_group of,
                                    const packed_room *room) {
    const int64_t at = of.panel * in->self->groups + of.group;
    const berth_vec factor = berth_vec_of(packed_factor(in->self->kind, in->self->product));
    const float *x_sums = in->sums + of.group * in->rows;
    const float *x_scales = in->scales_of_x + of.group * in->rows;
    for (int64_t output = 0; output < PACKED_WIDTH; output += BERTH_LANES) {
        const int64_t first = output / PANEL * in->rows * PANEL + output % PANEL;
        const berth_vec scale =
            factor * berth_vec_load_as(berth_data(in->scales), in->scales->dtype,
                                       at * PACKED_WIDTH + output);
        for (int64_t row = 0; row < in->rows; ++row) {
            float *total = room->totals + first + row * PANEL;
            const berth_vec sums =
                packed_take(in->self, berth_vec_load(room->sums + first + row * PANEL),
                            room->zeros + output, x_sums[row]);
            berth_vec_store(total, berth_vec_fma(sums, scale * berth_vec_of(x_scales[row]),
                                                 berth_vec_load(total)));
        }
    }
}

static inline void packed_store(const packed_job *in, int64_t panel, const float *totals) {
    const berth_tensor *y = in->args->outputs[0];
    const int64_t output = panel * PACKED_WIDTH;
    const int64_t count = at_most(PACKED_WIDTH, in->self->out - output);
    float start[PACKED_WIDTH] = {0};
    if (in->bias) {
        berth_load(berth_data(in->bias), in->bias->dtype, output, count, start);
    }
    for (int64_t row = 0; row < in->rows; ++row) {
        void *to = berth_row(y, in->first + row);
        for (int64_t i = 0; i < count; i += BERTH_LANES) {
            const float *sums = totals + (i / PANEL * in->rows + row) * PANEL + i % PANEL;
            berth_vec_store_some(to, y->dtype, output + i, output + count,
                                 berth_vec_load(sums) + berth_vec_load(start + i));
        }
    }
}

static inline void packed_two_panels(const packed_job *in, int64_t panel, const packed_room *room) {
    const packed *self = in->self;
    const packed_span of = {
        .codes = (const uint8_t *)berth_data(in->weight) + panel * 2 * self->panel_bytes,
        .room = room,
    };
    memset(room->totals, 0, (size_t)(in->rows * PACKED_WIDTH) * sizeof(float));
    for (int64_t group = 0; group < self->groups; ++group) {
        const packed_group at = {panel, group};
        packed_span now = of;
        now.steps.first = group * self->group;
        now.steps.end = at_most(now.steps.first + self->group, self->steps);
        if (group == 0 || in->zeros) {
            packed_load_zeros(in, at, room->zeros);
        }
        if (self->kind == PACKED_I8) {
            packed_by_integers(in, &now);
        } else {
            packed_by_codes(in, &now);
        }
        packed_add_group(in, at, room);
    }
    packed_store(in, panel, room->totals);
}

static inline void packed_multiply_part(const void *work, int64_t part, int64_t parts) {
    const packed_job *in = work;
    const berth_span panels = berth_share(pieces(in->self->out, PACKED_WIDTH), part, parts);
    packed_room room = {.totals = in->scratch + part * PACKED_ROOM};
    room.sums = room.totals + PACKED_ROWS * PACKED_WIDTH;
    room.zeros = room.sums + PACKED_ROWS * PACKED_WIDTH;
    room.widened = room.zeros + PACKED_WIDTH;
    for (int64_t panel = panels.first; panel < panels.end; ++panel) {
        packed_two_panels(in, panel, &room);
    }
}

static inline void packed_run_rows(const packed_job *in) {
    const packed *self = in->self;
    berth_run(self->cpu, packed_pack_part, in, in->rows * self->in);
    berth_run(self->cpu, packed_multiply_part, in, in->rows * self->in * self->out);
}

// Rows that are not finite, once more: what numbers are too much by cannot be taken off there.
static inline void packed_run_again(packed_job in) {
    uint8_t is_wrong[PACKED_ROWS] = {0};
    const int64_t rows = in.rows;
    for (int64_t i = 0; i < rows * in.self->groups; ++i) {
        is_wrong[i % rows] |= !isfinite(in.sums[i]);
    }
    const int64_t first = in.first;
    in.self += 1;
    in.rows = 1;
    for (int64_t row = 0; row < rows; ++row) {
        in.first = first + row;
        if (is_wrong[row]) {
            packed_run_rows(&in);
        }
    }
}

// The job knows everything but its rows and its memory.
static inline void packed_run(packed_job in, int64_t rows) {
    const packed *self = in.self;
    const uint64_t of_groups = panel_bytes_of(PACKED_ROWS * self->groups);
    char *memory = berth_data(in.args->workspace);
    in.x = (float *)(void *)memory;
    memory += panel_bytes_of(PACKED_ROWS * packed_x_words(self));
    in.sums = (float *)(void *)memory;
    in.scales_of_x = (float *)(void *)(memory + of_groups);
    in.scratch = (float *)(void *)(memory + 2 * of_groups);
    for (; in.first < rows; in.first += in.rows) {
        in.rows = at_most(PACKED_ROWS, rows - in.first);
        packed_run_rows(&in);
        if (self->has_sums && self->kind != PACKED_I8) {
            packed_run_again(in);
        }
    }
}

#endif
