// SPDX-License-Identifier: Apache-2.0
// What a part of an attention works with: its room in the workspace, and the queries of a task
// packed there.
#ifndef BERTH_KERNELS_CPU_ATTENTION_ROOM_H
#define BERTH_KERNELS_CPU_ATTENTION_ROOM_H

#include <cpu/attention_softmax.h>
#include <cpu/attention_work.h>

// What a part works with.
typedef struct room {
    float *keys;              // a panel
    float *values;            // a panel
    float *queries;           // [width][rows] of every few rows that are multiplied together
    float *scores;            // [rows, KEYS]
    softmax split;            // of all heads, [heads, rows]
    softmax whole;            // the same
    int64_t positions[ROWS];  // of the rows of one head
    int64_t query_rows[ROWS]; // of all heads
} room;

// ---- memory -------------------------------------------------------------------------------------

// Of some rows: sums, and largest and total of each.
static inline int64_t softmax_floats(const attention *self, int64_t rows) {
    return rows * (self->stride + 2);
}

static inline softmax softmax_at(const attention *self, void *memory, int64_t rows) {
    float *sums = memory;
    return (softmax){
        .sums = sums,
        .largest = sums + rows * self->stride,
        .totals = sums + rows * (self->stride + 1),
        .rows = rows,
        .stride = self->stride,
    };
}

static inline int64_t aligned(int64_t floats) {
    return pieces(floats * (int64_t)sizeof(float), 64) * 64;
}

// What a part needs: panels of keys and values, queries, scores, and the softmax of a split and of
// all.
static inline int64_t room_bytes(const attention *self) {
    return aligned(WIDE * self->width) + aligned(KEYS * WIDE) + aligned(ROWS * self->width) +
           aligned(ROWS * KEYS) + 2 * aligned(softmax_floats(self, ROWS));
}

static inline int64_t partial_bytes(const attention *self) {
    return aligned(softmax_floats(self, self->split));
}

// Of one part, for so many rows of all heads.
static inline room room_at(const attention *self, char *memory, int64_t part, int64_t rows) {
    char *from = memory + part * room_bytes(self);
    room out;
    out.keys = (float *)(void *)from;
    from += aligned(WIDE * self->width);
    out.values = (float *)(void *)from;
    from += aligned(KEYS * WIDE);
    out.queries = (float *)(void *)from;
    from += aligned(ROWS * self->width);
    out.scores = (float *)(void *)from;
    from += aligned(ROWS * KEYS);
    out.split = softmax_at(self, from, rows);
    from += aligned(softmax_floats(self, ROWS));
    out.whole = softmax_at(self, from, rows);
    return out;
}

// What the codes of a cache are multiplied by, as vec_load_f8 wants it.
static inline float code_scale(const job *in, int which) {
    const berth_tensor *scale = in->scales[which];
    return scale ? *(const float *)berth_data(scale) * VEC_F8_SCALE : 0;
}

// ---- queries ------------------------------------------------------------------------------------

// Some rows of one head, a column of them together for the broadcast.
static inline void pack_few(const berth_tensor *query, const int64_t *query_rows, int64_t rows,
                            float *to) {
    for (int64_t row = 0; row < rows; ++row) {
        const void *from = berth_row(query, query_rows[row]);
        for (int64_t i = 0; i < query->shape[2]; ++i) {
            to[i * rows + row] = berth_load_at(from, query->dtype, i);
        }
    }
}

static inline void prepare_rows(const job *in, const task *at, room *with) {
    for (int64_t row = 0; row < at->rows; ++row) {
        with->positions[row] = position_of(in, at, row);
    }
    for (int64_t row = 0; row < at->heads * at->rows; ++row) {
        with->query_rows[row] = query_row_of(in, at, row);
    }
    for (int64_t head = 0; head < at->heads; ++head) {
        const int64_t end = (head + 1) * at->rows;
        for (int64_t row = head * at->rows; row < end; row += BERTH_TILE_ROWS) {
            pack_few(in->query, with->query_rows + row, least(BERTH_TILE_ROWS, end - row),
                     with->queries + row * in->self->width);
        }
    }
}

#endif
