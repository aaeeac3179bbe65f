// SPDX-License-Identifier: Apache-2.0
// How the work of paged_attention is cut: into tasks of some rows, and the keys that a task's rows
// see into splits. Where a split begins and ends follows from positions alone.
#ifndef BERTH_KERNELS_CPU_ATTENTION_WORK_H
#define BERTH_KERNELS_CPU_ATTENTION_WORK_H

#include <cpu/attention_tile.h>
#include <cpu/cpu.h>

enum { QUERY, KEY, VALUE, SINKS, ALIBI_SLOPES, SINK_KEY };
enum { KEY_CACHE, VALUE_CACHE };

#define ROWS        96  // of a task, at most
#define SPLITS      16  // of a sequence, at most
#define SPLIT_KEYS  256 // at least
#define PACKED_ROWS 16  // what packing a tile costs, in rows

typedef struct attention {
    const berth_host *host;
    const berth_cpu *cpu;
    float scale;
    float soft_cap; // 0: none
    int64_t window; // 0: none
    int64_t width;  // of a head
    int64_t stride; // of a row of sums: the width in whole panels
    int64_t fewest; // rows of a head that are worth packing a tile for
    int64_t split;  // rows of a task, at most, whose splits may be computed at the same time
    uint64_t cache_group;
} attention;

// One forward.
typedef struct job {
    const attention *self;
    const berth_op_args *args;
    const berth_batch_view *batch;
    int64_t group;    // query heads of a head of the cache
    int64_t rows;     // of a head in a task, at most
    int64_t heads;    // of a task, at most
    int64_t cost;     // of all tasks
    int64_t is_split; // splits are computed at the same time
    char *rooms;      // of part 0
    char *partials;   // of task 0
} job;

// Heads [head, head + heads) of the cache, some rows of each: row r is query head
// `head * group + r % group` of new token r / group of the sequence.
typedef struct task {
    int64_t index;
    int64_t sequence;
    int64_t head;
    int64_t heads;
    int64_t first; // row
    int64_t rows;  // of each head
    int64_t start; // position of the sequence's first new token
} task;

// ---- what a row sees ----------------------------------------------------------------------------

static inline berth_span overlap(berth_span a, berth_span b) {
    const int64_t first = greatest(a.first, b.first);
    return (berth_span){.first = first, .end = greatest(first, least(a.end, b.end))};
}

static inline int64_t position_of(const job *in, const task *at, int64_t row) {
    return at->start + (at->first + row) / in->group;
}

// Row `row` of query and out, counted over all heads of the task.
static inline int64_t query_row_of(const job *in, const task *at, int64_t row) {
    const int32_t *starts = berth_data(in->batch->query_start_loc);
    const int64_t head = at->head + row / at->rows;
    const int64_t index = at->first + row % at->rows;
    const int64_t token = starts[at->sequence] + index / in->group;
    return token * in->args->inputs[QUERY]->shape[1] + head * in->group + index % in->group;
}

static inline berth_span seen_from(const attention *self, int64_t position) {
    return (berth_span){
        .first = self->window > 0 ? greatest(position - self->window + 1, 0) : 0,
        .end = position + 1,
    };
}

// By any row of the task.
static inline berth_span seen_by_any(const job *in, const task *at) {
    return (berth_span){
        .first = seen_from(in->self, position_of(in, at, 0)).first,
        .end = seen_from(in->self, position_of(in, at, at->rows - 1)).end,
    };
}

// Keys of a split of what a token at that position sees.
static inline int64_t split_keys(int64_t position) {
    int64_t keys = SPLIT_KEYS;
    while (position >= keys * SPLITS) {
        keys *= 2;
    }
    return keys;
}

// The splits of the task's rows, which are the same for all.
static inline berth_span splits_of(const job *in, const task *at) {
    const int64_t keys = split_keys(position_of(in, at, 0));
    const berth_span seen = seen_by_any(in, at);
    return (berth_span){.first = seen.first / keys, .end = pieces(seen.end, keys)};
}

static inline berth_span keys_of_split(const job *in, const task *at, int64_t split) {
    const int64_t keys = split_keys(position_of(in, at, 0));
    const berth_span all = {.first = split * keys, .end = (split + 1) * keys};
    return overlap(all, seen_by_any(in, at));
}

// ---- tasks --------------------------------------------------------------------------------------

static inline int64_t kv_heads(const job *in) {
    return in->args->states[KEY_CACHE]->shape[2];
}

static inline int64_t new_rows(const job *in, int64_t sequence) {
    const int32_t *starts = berth_data(in->batch->query_start_loc);
    return (starts[sequence + 1] - starts[sequence]) * in->group;
}

// The rows from at->first on and the heads from at->head on, as many as may be together.
static inline void fill_task(const job *in, task *at) {
    const int32_t length = ((const int32_t *)berth_data(in->batch->seq_lens))[at->sequence];
    const int64_t rows = new_rows(in, at->sequence);
    at->start = length - rows / in->group;
    const int64_t position = position_of(in, at, 0);
    const int64_t alike = (split_keys(position) * SPLITS - at->start) * in->group - at->first;
    at->rows = least(least(rows - at->first, in->rows), alike);
    at->heads = least(least(kv_heads(in) - at->head, in->heads), greatest(ROWS / at->rows, 1));
}

// The next task, from a zeroed one with index −1; 0 when there is none left.
static inline int next_task(const job *in, task *at) {
    const int64_t sequences = in->args->batch->sequence_count;
    at->head += at->heads;
    if (++at->index == 0 || at->head == kv_heads(in)) {
        at->head = 0;
        at->first += at->rows;
    }
    while (at->sequence < sequences && at->first == new_rows(in, at->sequence)) {
        at->first = 0;
        ++at->sequence;
    }
    if (at->sequence < sequences) {
        fill_task(in, at);
    }
    return at->sequence < sequences;
}

static inline int64_t cost_of(const task *at, berth_span keys) {
    return (keys.end - keys.first) * (at->rows + PACKED_ROWS) * at->heads;
}

static inline int may_be_split(const job *in, const task *at) {
    const berth_span splits = splits_of(in, at);
    return at->rows * at->heads <= in->self->split && splits.end - splits.first > 1;
}

#endif
