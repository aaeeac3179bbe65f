// SPDX-License-Identifier: Apache-2.0
// Attention over a paged cache, for the kernels of all ops that are one: for the new tokens of a
// sequence and the heads that share one head of the cache, some rows at a time, tile after tile of
// keys with a running softmax. A tile is read from the cache once for all rows, whatever its dtype,
// and used as floats. What is in no cache is one of a single block (as_block).
//
// The keys of a row are cut into splits, whose results are merged in order. Where a tile and a
// split begin and end follows from what a row sees alone, and no product depends on the rows beside
// it: so the result of a token is the same to the last bit alone and in any batch, with its prompt
// in one piece or in many, on any number of threads, and whether the splits were computed one after
// the other or at the same time, as they are where there are too few rows for all threads.
#ifndef BERTH_KERNELS_CPU_ATTENTION_RUN_H
#define BERTH_KERNELS_CPU_ATTENTION_RUN_H

#include <cpu/attention_split.h>
#include <cpu/attention_work.h>
#include <cpu/cpu.h>

#define TASKS    2            // for each thread: with fewer, splits are computed at the same time
#define PARTIALS (SPLITS + 1) // of a task: its splits and what stands before them
#define ALONE    (1 << 16)    // so few products are not worth waking other threads

// ---- memory -------------------------------------------------------------------------------------

// What follows from the number of heads of query and cache and from the widths.
static inline void attention_size(attention *self, int64_t heads, int64_t kv_heads, int64_t width,
                                  int64_t value_width) {
    self->width = width;
    self->value_width = value_width;
    self->stride = pieces(value_width, WIDE) * WIDE;
    self->fewest = least(greatest(heads / kv_heads, BERTH_TILE_ROWS), ROWS);
    self->split = least(greatest(heads, self->fewest), ROWS);
}

// What a call needs as job.memory: a room for every part, and the softmax of each split of tasks.
static inline uint64_t attention_bytes(const attention *self) {
    const int64_t threads = self->cpu->threads;
    const int64_t partials = threads > 1 ? threads * TASKS * PARTIALS : 0;
    return (uint64_t)(threads * room_bytes(self) + partials * partial_bytes(self));
}

static inline room room_of(const job *in, const task *at, int64_t part) {
    room out = room_at(in->self, in->memory, part, at->heads * at->rows);
    prepare_rows(in, at, &out);
    return out;
}

// ---- tasks --------------------------------------------------------------------------------------

static inline void store_rows(const job *in, const task *at, const softmax *from) {
    for (int64_t row = 0; row < from->rows; ++row) {
        const int64_t to = query_row_of(in, at, row);
        if (in->sinks) {
            softmax_sink(from, row, per_head(in->sinks, to, 0));
        }
        softmax_store(from, row, berth_row(in->out, to), in->out->dtype, in->self->value_width);
    }
}

static inline void attend_task(const job *in, const task *at, int64_t part) {
    const room with = room_of(in, at, part);
    const berth_span splits = splits_of(in, at);
    attend_split(in, at, splits.first, &with, &with.whole);
    for (int64_t split = splits.first + 1; split < splits.end; ++split) {
        attend_split(in, at, split, &with, &with.split);
        softmax_merge(&with.whole, &with.split);
    }
    store_rows(in, at, &with.whole);
}

static inline softmax partial_of(const job *in, const task *at, int64_t split) {
    const int64_t index = at->index * PARTIALS + split - BEFORE;
    char *partials = in->memory + in->self->cpu->threads * room_bytes(in->self);
    char *from = partials + index * partial_bytes(in->self);
    return softmax_at(in->self, from, at->heads * at->rows);
}

// Work of that cost comes next: whether it is the part's, of which each gets as much as any.
static inline int is_mine(const job *in, int64_t cost, int64_t *done, berth_span part) {
    const int64_t middle = *done + cost / 2;
    *done += cost;
    return middle * part.end / in->cost == part.first;
}

static inline void attend_splits(const job *in, const task *at, int64_t *done, berth_span part) {
    const berth_span splits = splits_of(in, at);
    for (int64_t split = splits.first; split < splits.end; ++split) {
        if (is_mine(in, cost_of(at, keys_of_split(in, at, split)), done, part)) {
            const room with = room_of(in, at, part.first);
            const softmax to = partial_of(in, at, split);
            attend_split(in, at, split, &with, &to);
        }
    }
}

static inline void attend_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_span this = {.first = part, .end = parts};
    int64_t done = 0;
    for (task at = {.index = -1}; next_task(in, &at);) {
        if (in->is_split && may_be_split(in, &at)) {
            attend_splits(in, &at, &done, this);
        } else if (is_mine(in, cost_of(&at, seen_by_any(in, &at)), &done, this)) {
            attend_task(in, &at, part);
        }
    }
}

static inline void merge_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    for (task at = {.index = -1}; next_task(in, &at);) {
        if (at.index % parts != part || !may_be_split(in, &at)) {
            continue;
        }
        const berth_span splits = splits_of(in, &at);
        const softmax whole = partial_of(in, &at, splits.first);
        for (int64_t split = splits.first + 1; split < splits.end; ++split) {
            const softmax next = partial_of(in, &at, split);
            softmax_merge(&whole, &next);
        }
        store_rows(in, &at, &whole);
    }
}

// Pieces of work, and in *out_tasks in how many tasks.
static inline int64_t count_pieces(const job *in, int64_t *out_tasks) {
    int64_t count = 0;
    *out_tasks = 0;
    for (task at = {.index = -1}; next_task(in, &at); ++*out_tasks) {
        const berth_span splits = splits_of(in, &at);
        count += may_be_split(in, &at) ? splits.end - splits.first : 1;
    }
    return count;
}

// How the work is cut: fewer rows and fewer heads at a time where that gives every thread
// something to do.
static inline void plan(job *in) {
    const attention *self = in->self;
    const int64_t wanted = self->cpu->threads > 1 ? self->cpu->threads * TASKS : 1;
    const int64_t rows = (in->tokens.end - in->tokens.first) * in->query->shape[1];
    const int64_t share = pieces(rows, wanted) / BERTH_TILE_ROWS * BERTH_TILE_ROWS;
    int64_t tasks = 0;
    in->rows = least(greatest(share, self->fewest), ROWS);
    in->heads = kv_heads(in);
    const int64_t count = count_pieces(in, &tasks);
    if (count < wanted) {
        in->heads = greatest(in->heads * count / wanted, 1);
        (void)count_pieces(in, &tasks);
    }
    in->is_split = tasks < wanted;
    in->cost = 0;
    for (task at = {.index = -1}; next_task(in, &at);) {
        in->cost += cost_of(&at, seen_by_any(in, &at));
    }
}

// Writes `out` for all tokens at hand. The result of a token depends on nothing beside it.
static inline void attend(job *in) {
    const berth_cpu *cpu = in->self->cpu;
    in->group = in->query->shape[1] / kv_heads(in);
    plan(in);
    if (in->cost < 1) {
        return;
    }
    if (in->cost * in->self->width < ALONE) {
        in->is_split = 0;
        attend_part(in, 0, 1);
        return;
    }
    cpu->run(cpu, attend_part, in);
    if (in->is_split) {
        cpu->run(cpu, merge_part, in);
    }
}

#endif
