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

#include <cpu/packed_matrix.h>
#include <cpu/packed_rows.h>
#include <cpu/packed_sums.h>
#include <cpu/packed_x.h>

// Of packed rows, and of one whose columns are floats (packed_run_again).
static inline uint64_t packed_x_bytes(const packed *self) {
    const int64_t words = self->at_once * packed_x_words(self);
    const int64_t again = self->steps * packed_columns(self->kind);
    return panel_bytes_of(words > again ? words : again);
}

static inline uint64_t packed_workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const packed *self = state;
    return packed_x_bytes(self) + 2 * panel_bytes_of(self->at_once * self->groups) +
           (uint64_t)self->cpu->threads * panel_bytes_of(packed_room_floats(self->at_once));
}

// ---- multiplying --------------------------------------------------------------------------------

// What stands beside outputs of two panels; `otherwise` where nothing does.
static inline void packed_load_outputs(const berth_tensor *of, berth_span outputs, float otherwise,
                                       float *to) {
    for (int64_t i = 0; i < PACKED_WIDTH; ++i) {
        to[i] = otherwise;
    }
    if (of) {
        berth_load(berth_data(of), of->dtype, outputs.first, outputs.end - outputs.first, to);
    }
}

static inline void packed_store(const packed_job *in, int64_t panel, const float *totals) {
    const berth_tensor *y = in->args->outputs[0];
    const int64_t output = panel * PACKED_WIDTH;
    const int64_t count = at_most(PACKED_WIDTH, in->self->out - output);
    float start[PACKED_WIDTH];
    float by[PACKED_WIDTH];
    packed_load_outputs(in->bias, (berth_span){output, output + count}, 0, start);
    packed_load_outputs(in->factors, (berth_span){output, output + count}, 1, by);
    for (int64_t row = 0; row < in->rows; ++row) {
        void *to = berth_row(y, in->first + row);
        for (int64_t i = 0; i < count; i += BERTH_LANES) {
            const float *sums = totals + (i / PANEL * in->rows + row) * PANEL + i % PANEL;
            const berth_vec numbers = berth_vec_load(sums) * berth_vec_load(by + i);
            berth_vec_store_some(to, y->dtype, output + i, output + count,
                                 numbers + berth_vec_load(start + i));
        }
    }
}

static inline void packed_load_zeros(const packed_groups *by, int64_t group, float *to) {
    for (int64_t output = 0; output < PACKED_WIDTH; output += BERTH_LANES) {
        berth_vec_store(to + output, packed_zeros(by, group, output));
    }
}

static inline void packed_load_bias(const packed_job *in, int64_t panel, float *to) {
    const int64_t output = panel * PACKED_WIDTH;
    memset(to, 0, PACKED_WIDTH * sizeof(float));
    if (in->sum_bias) {
        memcpy(to, (const int32_t *)berth_data(in->sum_bias) + output,
               (size_t)at_most(PACKED_WIDTH, in->self->out - output) * sizeof(int32_t));
    }
}

// Group after group, with all rows, of some pairs of panels.
static inline void packed_by_groups(const packed_job *in, const packed_groups *by,
                                    packed_span span) {
    const packed *self = in->self;
    const packed_room *room = span.room;
    for (int64_t group = 0; group < self->groups; ++group) {
        span.steps = packed_group_steps(self, group);
        if (self->kind == PACKED_I8) {
            packed_by_integers(in, &span);
        } else {
            for (int64_t i = 0; i < span.count; ++i) {
                packed_load_zeros(&by[i], group, room->zeros + i * PACKED_WIDTH);
            }
            packed_by_codes(in, &span);
        }
        for (int64_t i = 0; i < span.count; ++i) {
            packed_add_group(in, &by[i], group, packed_sums_at(in, room->sums, i, 0));
        }
    }
}

static inline const packed_fn *packed_few_of(const packed_job *in) {
    const packed *self = in->self;
    return self->product == DOT_BF16    ? packed_dots[self->kind]
           : self->product == DOT_WORDS ? packed_words_few[self->kind]
           : packed_by_shifts(in)       ? packed_shifts
                                        : packed_floats[self->kind];
}

static inline void packed_few_rows(const packed_job *in, const packed_groups *by,
                                   const uint8_t *codes, const packed_room *room) {
    const packed *self = in->self;
    if (is_matrix(self->product)) {
        packed_by_matrix(in, by, codes, room);
        return;
    }
    const packed_chunk all = packed_chunk_of(in, codes, (berth_span){0, self->steps});
    packed_few_of(in)[in->rows](&all, by, self->group);
}

// All rows by some pairs of panels, at most PACKED_GROUP: their totals.
static inline void packed_multiply_panels(const packed_job *in, int64_t panel, int64_t count,
                                          const packed_room *room) {
    const packed *self = in->self;
    const int are_few = packed_are_few(in);
    packed_groups by[PACKED_GROUP];
    const packed_span span = {
        .codes = (const uint8_t *)berth_data(in->weight) + panel * self->panels_bytes,
        .count = count,
        .room = room,
    };
    for (int64_t i = 0; i < count; ++i) {
        by[i] = packed_groups_of(in, panel + i, packed_sums_at(in, room->totals, i, 0));
        if (self->kind == PACKED_I8) {
            float *bias = room->zeros + i * PACKED_WIDTH;
            packed_load_bias(in, panel + i, bias);
            by[i].bias = bias;
        } else if (are_few) {
            packed_few_rows(in, &by[i], span.codes + i * self->panels_bytes, room);
        }
    }
    if (!are_few) {
        packed_by_groups(in, by, span);
    }
}

static inline void packed_multiply_part(const void *work, int64_t part, int64_t parts) {
    const packed_job *in = work;
    const berth_span panels = berth_share(pieces(in->self->out, PACKED_WIDTH), part, parts);
    const int64_t rows = in->self->at_once;
    const packed_room room = packed_room_at(in->scratch + part * packed_room_floats(rows), rows);
    const int64_t together = in->rows > tile_height(in->self->product, in->rows) ? PACKED_GROUP : 1;
    tiles_begin(in->self->product, in->rows);
    for (int64_t panel = panels.first, count = 0; panel < panels.end; panel += count) {
        count = at_most(together, panels.end - panel);
        packed_multiply_panels(in, panel, count, &room);
        for (int64_t i = 0; i < count; ++i) {
            packed_store(in, panel + i, packed_sums_at(in, room.totals, i, 0));
        }
    }
    tiles_end(in->self->product);
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
    const uint64_t of_groups = panel_bytes_of(self->at_once * self->groups);
    char *memory = berth_data(in.args->workspace);
    in.x = (float *)(void *)memory;
    memory += packed_x_bytes(self);
    in.sums = (float *)(void *)memory;
    in.scales_of_x = (float *)(void *)(memory + of_groups);
    in.scratch = (float *)(void *)(memory + 2 * of_groups);
    for (; in.first < rows; in.first += in.rows) {
        in.rows = at_most(self->at_once, rows - in.first);
        packed_run_rows(&in);
        if (self->has_sums && self->kind != PACKED_I8) {
            packed_run_again(in);
        }
    }
}

#endif
