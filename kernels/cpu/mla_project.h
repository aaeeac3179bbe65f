// SPDX-License-Identifier: Apache-2.0
// The two products of mla with kv_b_proj, head by head: a query times the rows that would make a
// key of a latent row, and a weighted sum of latent rows times those that make a value. A part has
// some columns of some heads, for all tokens at hand; each is one sum in a fixed order, so that a
// token's result depends on no other.
#ifndef BERTH_KERNELS_CPU_MLA_PROJECT_H
#define BERTH_KERNELS_CPU_MLA_PROJECT_H

#include <cpu/attention_run.h>
#include <cpu/transpose.h>

enum { QUERY, C_KV, K_PE, KV_B_PROJ_WEIGHT, QUERY_PE, QUERY_START_LOC, SEQ_LENS };

typedef struct mla {
    const berth_host *host;
    attention of; // one head of keys: latent columns, then rotated ones; values: the latent ones
    uint64_t cache_group;
    int64_t heads;
    int64_t nope;    // n, columns of a query without position
    int64_t rope;    // p, rotated columns
    int64_t latent;  // l
    int64_t values;  // v
    int64_t row;     // floats of an absorbed query, in whole panels
    int64_t at_once; // tokens
    int64_t rows;    // latent rows of a call without a cache, at most
} mla;

// Some tokens.
typedef struct mla_job {
    const mla *self;
    const berth_op_args *args;
    berth_span tokens;
    char *memory;   // of the attention
    float *queries; // [tokens, heads, row]: absorbed
    float *sums;    // [tokens, heads, of.stride]: weighted latents
} mla_job;

// Rows [first, first + count) of a head in kv_b_proj: keys first. Those behind are the last one.
static inline tile_rows mla_weight(const mla_job *in, int64_t head, int64_t first, int64_t count) {
    const mla *self = in->self;
    const int64_t all = head * (self->nope + self->values) + first;
    tile_rows out = {.offset = 0};
    for (int64_t line = 0; line < KEYS; ++line) {
        out.at[line] = berth_row(in->args->inputs[KV_B_PROJ_WEIGHT], all + least(line, count - 1));
    }
    return out;
}

// ---- queries ------------------------------------------------------------------------------------

static inline const void *mla_query(const mla_job *in, int64_t token, int64_t head) {
    return berth_row(in->args->inputs[QUERY], (in->tokens.first + token) * in->self->heads + head);
}

static inline float *mla_absorbed(const mla_job *in, int64_t token, int64_t head) {
    return in->queries + (token * in->self->heads + head) * in->self->row;
}

// Adds what some rows of the weight make of some columns of all tokens' queries.
static inline void mla_absorb_rows(const mla_job *in, int64_t head, int64_t column, berth_span rows,
                                   float *panel) {
    const mla *self = in->self;
    const berth_tensor *query = in->args->inputs[QUERY];
    const int64_t count = rows.end - rows.first;
    const int64_t tokens = in->tokens.end - in->tokens.first;
    const tile_rows weight = mla_weight(in, head, rows.first, count);
    float factors[BERTH_TILE_ROWS][KEYS];
    pack_values(&weight, (berth_span){0, count}, in->args->inputs[KV_B_PROJ_WEIGHT]->dtype,
                (berth_span){column, self->latent}, panel);
    for (int64_t token = 0; token < tokens; token += BERTH_TILE_ROWS) {
        const int64_t few = least(BERTH_TILE_ROWS, tokens - token);
        for (int64_t i = 0; i < few; ++i) {
            berth_load(mla_query(in, token + i, head), query->dtype, rows.first, count, factors[i]);
        }
        const weighing of = {
            .panel = panel,
            .count = count,
            .weights = factors[0],
            .sums = mla_absorbed(in, token, head) + column,
            .stride = self->heads * self->row,
        };
        weigh_values[few](&of);
    }
}

// The rotated columns of all tokens' queries, behind the latent ones.
static inline void mla_append(const mla_job *in, int64_t head) {
    const mla *self = in->self;
    const berth_tensor *query = in->args->inputs[QUERY];
    const berth_tensor *apart = in->args->inputs[QUERY_PE];
    for (int64_t token = 0; token < in->tokens.end - in->tokens.first; ++token) {
        const int64_t row = (in->tokens.first + token) * self->heads + head;
        berth_load(apart ? berth_row(apart, row) : berth_row(query, row), query->dtype,
                   apart ? 0 : self->nope, self->rope,
                   mla_absorbed(in, token, head) + self->latent);
    }
}

// Reads columns of a head's rows through as they lie: a panel is too narrow for the machine to see
// the rows coming.
static inline void mla_fetch(const mla_job *in, int64_t head, berth_span columns) {
    const berth_tensor *weight = in->args->inputs[KV_B_PROJ_WEIGHT];
    const int64_t bytes = BERTH_DTYPE_BITS(weight->dtype) / 8;
    for (int64_t i = 0; i < in->self->nope; ++i) {
        const char *row = berth_row(weight, head * (in->self->nope + in->self->values) + i);
        for (int64_t at = columns.first * bytes; at < columns.end * bytes; at += 64) {
            (void)*(const volatile char *)(row + at);
        }
    }
}

static inline void mla_absorb_part(const void *work, int64_t part, int64_t parts) {
    const mla_job *in = work;
    const mla *self = in->self;
    const int64_t panels = pieces(self->latent, WIDE);
    const int64_t tokens = in->tokens.end - in->tokens.first;
    const berth_span share = berth_share(self->heads * panels, part, parts);
    const room with = room_at(&self->of, in->memory, part, ROWS);
    for (int64_t i = share.first; i < share.end; ++i) {
        const int64_t head = i / panels;
        const int64_t column = i % panels * WIDE;
        if (i == share.first || column == 0) {
            const int64_t end = column + (share.end - i) * WIDE;
            mla_fetch(in, head, (berth_span){column, least(self->latent, end)});
        }
        for (int64_t token = 0; token < tokens; ++token) {
            memset(mla_absorbed(in, token, head) + column, 0, WIDE * sizeof(float));
        }
        for (int64_t row = 0; row < self->nope; row += KEYS) {
            mla_absorb_rows(in, head, column, (berth_span){row, least(row + KEYS, self->nope)},
                            with.values);
        }
        if (column + WIDE >= self->latent) {
            mla_append(in, head);
        }
    }
}

// ---- values -------------------------------------------------------------------------------------

static inline void mla_expand_part(const void *work, int64_t part, int64_t parts) {
    const mla_job *in = work;
    const mla *self = in->self;
    const berth_tensor *y = in->args->outputs[0];
    const berth_dtype dtype = in->args->inputs[KV_B_PROJ_WEIGHT]->dtype;
    const int64_t panels = pieces(self->values, WIDE);
    const int64_t stride = self->heads * self->of.stride;
    const int64_t tokens = in->tokens.end - in->tokens.first;
    const berth_span share = berth_share(self->heads * panels, part, parts);
    const room with = room_at(&self->of, in->memory, part, ROWS);
    for (int64_t i = share.first; i < share.end; ++i) {
        const int64_t head = i / panels;
        const int64_t first = i % panels * WIDE;
        const int64_t count = least(WIDE, self->values - first);
        const tile_rows weight = mla_weight(in, head, self->nope + first, count);
        pack_keys(&weight, 0, dtype, self->latent, with.keys);
        for (int64_t token = 0; token < tokens; token += BERTH_TILE_ROWS) {
            const int64_t few = least(BERTH_TILE_ROWS, tokens - token);
            const float *sums = in->sums + token * stride + head * self->of.stride;
            berth_transpose(sums, stride, few, self->latent, with.queries);
            scores_of[few](with.keys, self->latent, with.queries, with.scores);
            for (int64_t row = 0; row < few; ++row) {
                const int64_t to = (in->tokens.first + token + row) * self->heads + head;
                berth_store(berth_row(y, to), y->dtype, first, count, with.scores + row * KEYS);
            }
        }
    }
}

#endif
