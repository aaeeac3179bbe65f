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

#include <cpu/packed_rows.h>
#include <cpu/packed_x.h>

static inline uint64_t packed_workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const packed *self = state;
    return panel_bytes_of(PACKED_ROWS * packed_x_words(self)) +
           2 * panel_bytes_of(PACKED_ROWS * self->groups) +
           (uint64_t)self->cpu->threads * panel_bytes_of(PACKED_ROOM);
}

// ---- multiplying --------------------------------------------------------------------------------

// The sums of a group as numbers; `less` is as packed_less gives it, or of integers what is added.
BERTH_INLINE berth_vec packed_take(const packed *self, berth_vec sums, berth_vec less, float of_x) {
    if (self->kind == PACKED_I8) {
        const uint32_t excess = (uint32_t)((int32_t)of_x * (int32_t)packed_excess(PACKED_I8, 0));
        const berth_vec_bits whole = (berth_vec_bits)sums + (berth_vec_bits)less - excess;
        return __builtin_convertvector((berth_vec_ints)whole, berth_vec);
    }
    return self->has_sums ? berth_vec_fma(less, berth_vec_of(of_x), sums) : sums;
}

static inline void packed_add_group(const packed_job *in, const packed_groups *by, int64_t group,
                                    const packed_room *room) {
    const float *x_sums = by->x_sums + group * in->rows;
    const float *x_scales = by->x_scales + group * in->rows;
    for (int64_t output = 0; output < PACKED_WIDTH; output += BERTH_LANES) {
        const int64_t first = output / PANEL * in->rows * PANEL + output % PANEL;
        const berth_vec scale = packed_scale(by, group, output);
        const berth_vec zeros = berth_vec_load(room->zeros + output);
        const berth_vec less = in->self->kind == PACKED_I8 ? zeros : packed_less(by, zeros);
        for (int64_t row = 0; row < in->rows; ++row) {
            const berth_vec sums = berth_vec_load(room->sums + first + row * PANEL);
            packed_add_total(by->totals + first + row * PANEL,
                             packed_take(in->self, sums, less, x_sums[row]), scale, x_scales[row]);
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

// Group after group, with all rows.
static inline void packed_by_groups(const packed_job *in, const packed_groups *by,
                                    packed_span span) {
    const packed *self = in->self;
    for (int64_t group = 0; group < self->groups; ++group) {
        span.steps.first = group * self->group;
        span.steps.end = at_most(span.steps.first + self->group, self->steps);
        if (self->kind == PACKED_I8) {
            packed_by_integers(in, &span);
        } else {
            packed_load_zeros(by, group, span.room->zeros);
            packed_by_codes(in, &span);
        }
        packed_add_group(in, by, group, span.room);
    }
}

// All rows by two panels: their totals.
static inline void packed_two_panels(const packed_job *in, int64_t panel, const packed_room *room) {
    const packed *self = in->self;
    const packed_span span = {
        .codes = (const uint8_t *)berth_data(in->weight) + panel * self->panels_bytes,
        .room = room,
    };
    const packed_groups by = packed_groups_of(in, panel, room->totals);
    memset(room->totals, 0, (size_t)(in->rows * PACKED_WIDTH) * sizeof(float));
    if (self->kind != PACKED_I8 && in->rows <= PACKED_FEW) {
        const packed_chunk all = packed_chunk_of(in, span.codes, (berth_span){0, self->steps});
        const packed_fn *few =
            self->product == DOT_BF16 ? packed_dots[self->kind] : packed_floats[self->kind];
        few[in->rows](&all, &by, self->group);
    } else {
        if (self->kind == PACKED_I8) {
            packed_load_bias(in, panel, room->zeros);
        }
        packed_by_groups(in, &by, span);
    }
}

static inline packed_room packed_room_at(float *memory) {
    packed_room room = {.totals = memory};
    room.sums = room.totals + PACKED_ROWS * PACKED_WIDTH;
    room.zeros = room.sums + PACKED_ROWS * PACKED_WIDTH;
    room.widened = room.zeros + PACKED_WIDTH;
    return room;
}

static inline void packed_multiply_part(const void *work, int64_t part, int64_t parts) {
    const packed_job *in = work;
    const berth_span panels = berth_share(pieces(in->self->out, PACKED_WIDTH), part, parts);
    const packed_room room = packed_room_at(in->scratch + part * PACKED_ROOM);
    for (int64_t panel = panels.first; panel < panels.end; ++panel) {
        packed_two_panels(in, panel, &room);
        packed_store(in, panel, room.totals);
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
