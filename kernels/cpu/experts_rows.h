// SPDX-License-Identifier: Apache-2.0
// The rows of a mixture of experts (experts.h): which tokens go to which expert, and x in their
// order.
#ifndef BERTH_KERNELS_CPU_EXPERTS_ROWS_H
#define BERTH_KERNELS_CPU_EXPERTS_ROWS_H

#include <cpu/experts.h>

// ---- who goes where -----------------------------------------------------------------------------

static inline int64_t experts_of(const experts_job *job, int64_t choice) {
    const experts *self = job->self;
    return berth_moe_expert(job->args->inputs[TOPK_IDS], job->args->inputs[EXPERT_MAP],
                            job->first_token + choice / self->choices, choice % self->choices,
                            self->experts);
}

static inline berth_status experts_count(experts_job *job) {
    const experts *self = job->self;
    memset(job->counts, 0, (size_t)self->experts * sizeof *job->counts);
    for (int64_t i = 0; i < job->tokens * self->choices; ++i) {
        const int64_t expert = experts_of(job, i);
        if (expert == -2) {
            return berth_moe_no_expert(self->host, self->op, job->first_token + i / self->choices);
        }
        if (expert >= 0) {
            ++job->counts[expert];
        }
    }
    return BERTH_OK;
}

// Slices of every expert's rows; its count becomes its first row.
static inline void experts_slice_up(experts_job *job) {
    int64_t row = 0;
    job->slice_count = 0;
    for (int64_t expert = 0; expert < job->self->experts; ++expert) {
        const int64_t end = row + job->counts[expert];
        job->counts[expert] = row;
        while (row < end) {
            const int64_t rows = at_most(end - row, EXPERTS_SLICE);
            job->slices[job->slice_count++] = (experts_slice){expert, row, rows};
            row += rows;
        }
    }
}

static inline void experts_place(experts_job *job) {
    const int64_t choices = job->self->choices;
    for (int64_t i = 0; i < job->tokens * choices; ++i) {
        const int64_t token = i / choices;
        const int64_t expert = experts_of(job, i);
        if (expert >= 0) {
            const float *weights =
                berth_row(job->args->inputs[TOPK_WEIGHTS], job->first_token + token);
            const int64_t row = job->counts[expert]++;
            job->token[row] = (int32_t)token;
            job->weight[row] = weights[i % choices];
        }
    }
}

// ---- x ------------------------------------------------------------------------------------------

static inline void experts_load(const void *rows, int64_t row, int64_t first, int64_t count,
                                void *to) {
    const experts_job *job = rows;
    const berth_tensor *x = job->args->inputs[X];
    const char *from = berth_row(x, job->first_token + job->token[row]);
    const int is_paired_x = is_paired(job->self->product);
    const int is_weighted = job->self->moe.is_weighted_first;
    if (is_paired_x && !is_weighted) {
        memcpy(to, from + first * (int64_t)sizeof(uint16_t), (size_t)count * sizeof(uint16_t));
        return;
    }
    const float weight = berth_round_to(x->dtype, job->weight[row]);
    float values[2 * PANEL_WORDS];
    float *floats = is_paired_x ? values : to;
    berth_load(from, x->dtype, first, count, floats);
    for (int64_t i = 0; i < count && is_weighted; ++i) {
        floats[i] = berth_round_to(x->dtype, floats[i] * weight);
    }
    if (is_paired_x) {
        berth_store(to, x->dtype, 0, count, floats);
    }
}

static inline void experts_pack_part(const void *work, int64_t part, int64_t parts) {
    const experts_job *job = work;
    const experts *self = job->self;
    const int64_t words = panel_floats(self->hidden, self->product);
    const panel_rows rows = {experts_load, job, self->hidden, self->product};
    for (int64_t i = 0; i < job->slice_count; ++i) {
        const experts_slice *slice = &job->slices[i];
        const int64_t height = tile_height(self->product, slice->rows);
        const int64_t end = slice->first + slice->rows;
        const berth_span blocks = berth_share(pieces(slice->rows, height), part, parts);
        for (int64_t block = blocks.first; block < blocks.end; ++block) {
            const int64_t first = slice->first + block * height;
            panel_pack(&rows, first, at_most(first + height, end), job->x + first * words);
        }
    }
}

// ---- rounding -----------------------------------------------------------------------------------

// The columns of a row of a panel, rounded as x is.
static inline void experts_round(berth_dtype dtype, float *columns) {
    for (int64_t i = 0; i < PANEL; i += BERTH_LANES) {
        berth_vec_store(columns + i, berth_vec_round_to(dtype, berth_vec_load(columns + i)));
    }
}

#endif
