// SPDX-License-Identifier: Apache-2.0
// A step of a mixture of experts (experts.h): multiply by W13 and activate, multiply by W2 and add
// up.
#ifndef BERTH_KERNELS_CPU_EXPERTS_RUN_H
#define BERTH_KERNELS_CPU_EXPERTS_RUN_H

#include <cpu/experts_rows.h>
#include <cpu/functions.h>

// ---- W13 ----------------------------------------------------------------------------------------

static inline void experts_silu(const float *gate, const float *up, float *to) {
    for (int64_t i = 0; i < PANEL; i += BERTH_LANES) {
        berth_vec_store(to + i, berth_vec_silu(berth_vec_load(gate + i)) * berth_vec_load(up + i));
    }
}

// What W2 takes, rounded, from one row of a panel of the gate and of the up projection, both
// rounded.
static inline void experts_activate(const berth_moe *moe, berth_dtype dtype, const float *gate,
                                    const float *up, float *to) {
    if (moe->activation == BERTH_MOE_SILU) {
        experts_silu(gate, up, to);
    }
    for (int64_t i = 0; i < PANEL && moe->activation != BERTH_MOE_SILU; ++i) {
        to[i] = berth_moe_activate(moe, gate[i], up[i]);
    }
    experts_round(dtype, to);
}

// A row of a packed block.
typedef struct experts_row {
    float *block;
    int64_t row;
    int64_t rows;
} experts_row;

// The columns of a panel, of one row, to where W2 finds them.
static inline void experts_keep(const experts *self, int64_t panel, const float *columns,
                                experts_row to) {
    float words[PANEL];
    const int64_t of_word = is_paired(self->product) ? 2 : 1;
    const int64_t first = panel * PANEL / of_word;
    const int64_t width = panel_floats(self->inner, self->product);
    const int64_t count = at_most(PANEL / of_word, width - first);
    if (of_word == 2) {
        panel_join(columns, count, words);
        columns = words;
    }
    tile_put(self->product, columns, (berth_span){first, first + count}, to.row,
             (tile_block){to.block, to.rows});
}

// The bias of a panel's outputs, zero where there is none; `step` apart.
static inline void experts_bias(const berth_tensor *bias, int64_t expert, const int64_t place[3],
                                float *to) {
    for (int64_t i = 0; i < PANEL; ++i) {
        const int is_there = bias && i < place[2];
        to[i] = is_there
                    ? berth_load_at(berth_row(bias, expert), bias->dtype, place[0] + i * place[1])
                    : 0;
    }
}

// sums: [gates][rows][PANEL].
static inline void experts_activate_panel(const experts_job *job, const experts_slice *slice,
                                          int64_t panel, float *sums) {
    const experts *self = job->self;
    const int is_in_turns = self->moe.activation == BERTH_MOE_SWIGLUOAI;
    const int64_t count = at_most(PANEL, self->inner - panel * PANEL);
    const int64_t gate[] = {panel * PANEL * (1 + is_in_turns), 1 + is_in_turns, count};
    const int64_t up[] = {is_in_turns ? gate[0] + 1 : gate[0] + self->inner, gate[1],
                          self->gates > 1 ? count : 0};
    const int64_t words = panel_floats(self->inner, self->product);
    const int64_t height = tile_height(self->product, slice->rows);
    const berth_dtype dtype = job->args->inputs[X]->dtype;
    float bias[2][PANEL];
    float columns[PANEL];
    experts_bias(job->args->inputs[W13_BIAS], slice->expert, gate, bias[0]);
    experts_bias(job->args->inputs[W13_BIAS], slice->expert, up, bias[1]);
    for (int64_t row = 0; row < slice->rows; ++row) {
        float *of_gate = sums + row * PANEL;
        float *of_up = self->gates > 1 ? of_gate + slice->rows * PANEL : of_gate;
        for (int64_t i = 0; i < PANEL; ++i) {
            of_gate[i] += bias[0][i];
            of_up[i] += bias[1][i];
        }
        experts_round(dtype, of_gate);
        if (of_up != of_gate) {
            experts_round(dtype, of_up);
        }
        experts_activate(&self->moe, dtype, of_gate, of_up, columns);
        memset(columns + count, 0, (size_t)(PANEL - count) * sizeof *columns);
        const int64_t block = row / height * height;
        const experts_row to = {
            .block = job->activated + (slice->first + block) * words,
            .row = row - block,
            .rows = at_most(height, slice->rows - block),
        };
        experts_keep(self, panel, columns, to);
    }
}

// What a panel of a slice costs: its weight is read, then its rows are multiplied.
static inline int64_t experts_cost(const experts_slice *slice) {
    return slice->rows + 4;
}

static inline void experts_inner_part(const void *work, int64_t part, int64_t parts) {
    const experts_job *job = work;
    const experts *self = job->self;
    const int64_t panels = pieces(self->inner, PANEL);
    const int64_t of_panel = self->gates * panel_bytes(self->hidden, self->dtype);
    const experts_room room = experts_room_at(job, part);
    panel_work product = {
        .count = self->gates,
        .columns = self->hidden,
        .product = self->product,
        .sums = room.sums,
        .widened = room.widened,
        .places_way = self->inner_places_way,
    };
    int64_t cost = 0;
    for (int64_t i = 0; i < job->slice_count; ++i) {
        cost += panels * experts_cost(&job->slices[i]);
    }
    const berth_span share = berth_share(cost, part, parts);
    cost = 0;
    for (int64_t i = 0; i < job->slice_count * panels; ++i) {
        const experts_slice *slice = &job->slices[i / panels];
        if (cost >= share.first && cost < share.end) {
            product.weight = (const char *)berth_data(job->args->inputs[W13_WEIGHT]) +
                             (slice->expert * panels + i % panels) * of_panel;
            product.x = job->x + slice->first * panel_floats(self->hidden, self->product);
            product.rows = slice->rows;
            panel_multiply(&product);
            experts_activate_panel(job, slice, i % panels, room.sums);
        }
        cost += experts_cost(slice);
    }
}

// ---- W2 -----------------------------------------------------------------------------------------

// Adds a slice's share of one panel of outputs to the tokens' sums [tokens][PANEL].
static inline void experts_add(const experts_job *job, const experts_slice *slice, int64_t panel,
                               const float *sums, float *to) {
    const int64_t place[] = {panel * PANEL, 1, at_most(PANEL, job->self->hidden - panel * PANEL)};
    float bias[PANEL];
    experts_bias(job->args->inputs[W2_BIAS], slice->expert, place, bias);
    for (int64_t row = 0; row < slice->rows; ++row) {
        const int64_t at = slice->first + row;
        const float weight = job->self->moe.is_weighted_first ? 1.0f : job->weight[at];
        float *token = to + job->token[at] * PANEL;
        for (int64_t i = 0; i < PANEL; ++i) {
            token[i] += (sums[row * PANEL + i] + bias[i]) * weight;
        }
    }
}

static inline void experts_store(const experts_job *job, int64_t panel, const float *sums) {
    const berth_tensor *y = job->args->outputs[0];
    const int64_t count = at_most(PANEL, job->self->hidden - panel * PANEL);
    for (int64_t token = 0; token < job->tokens; ++token) {
        berth_store(berth_row(y, job->first_token + token), y->dtype, panel * PANEL, count,
                    sums + token * PANEL);
    }
}

static inline void experts_outer_part(const void *work, int64_t part, int64_t parts) {
    const experts_job *job = work;
    const experts *self = job->self;
    const int64_t panels = pieces(self->hidden, PANEL);
    const int64_t of_panel = panel_bytes(self->inner, self->dtype);
    const berth_span share = berth_share(panels, part, parts);
    const experts_room room = experts_room_at(job, part);
    for (int64_t panel = share.first, count = 0; panel < share.end; panel += count) {
        count = at_most(EXPERTS_OUT, share.end - panel);
        memset(room.totals, 0, (size_t)(count * job->tokens * PANEL) * sizeof *room.totals);
        for (int64_t i = 0; i < job->slice_count; ++i) {
            const experts_slice *slice = &job->slices[i];
            const panel_work product = {
                .weight = (const char *)berth_data(job->args->inputs[W2_WEIGHT]) +
                          (slice->expert * panels + panel) * of_panel,
                .count = count,
                .columns = self->inner,
                .product = self->product,
                .x = job->activated + slice->first * panel_floats(self->inner, self->product),
                .rows = slice->rows,
                .sums = room.sums,
                .widened = room.widened,
                .places_way = self->outer_places_way,
            };
            panel_multiply(&product);
            for (int64_t j = 0; j < count; ++j) {
                experts_add(job, slice, panel + j, room.sums + j * slice->rows * PANEL,
                            room.totals + j * job->tokens * PANEL);
            }
        }
        for (int64_t j = 0; j < count; ++j) {
            experts_store(job, panel + j, room.totals + j * job->tokens * PANEL);
        }
    }
}

// ---- a step -------------------------------------------------------------------------------------

static inline void experts_run(const experts *self, berth_work_fn work, const experts_job *job) {
    if (job->tokens * self->choices * self->hidden * self->inner < EXPERTS_ALONE) {
        work(job, 0, 1);
    } else {
        self->cpu->run(self->cpu, work, job);
    }
}

static inline berth_status experts_forward(void *state, const berth_op_args *args) {
    const experts *self = state;
    const int64_t tokens = berth_row_count(args->inputs[X]);
    experts_job job = {.self = self, .args = args};
    (void)experts_layout(self, berth_data(args->workspace), &job);
    for (; job.first_token < tokens; job.first_token += job.tokens) {
        job.tokens = at_most(self->at_once, tokens - job.first_token);
        const berth_status status = experts_count(&job);
        if (status != BERTH_OK) {
            return status;
        }
        experts_slice_up(&job);
        experts_place(&job);
        experts_run(self, experts_pack_part, &job);
        experts_run(self, experts_inner_part, &job);
        experts_run(self, experts_outer_part, &job);
    }
    return BERTH_OK;
}

// The table of an op.
#define EXPERTS_KERNEL(op_name)                                                                    \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (op_name), .name = "cpu." op_name,                    \
        .dispatch_key = BERTH_DISPATCH_CPU, .revision = 1, .flags = BERTH_IMPL_DETERMINISTIC,      \
        .supports = experts_supports, .create = experts_create, .workspace = experts_workspace,    \
        .forward = experts_forward, .destroy = berth_instance_free,                                \
        .packed_bytes = experts_packed_bytes, .pack = experts_pack, .pack_rows = experts_pack_rows \
    }

#endif
