// SPDX-License-Identifier: Apache-2.0
// How the work of attention is cut: into tasks of some rows, and the keys that a task's rows see
// into splits. Where a split begins and ends follows from what a row sees alone.
#ifndef BERTH_KERNELS_CPU_ATTENTION_WORK_H
#define BERTH_KERNELS_CPU_ATTENTION_WORK_H

#include <cpu/attention_tile.h>
#include <cpu/cpu.h>

enum { KEYS_OF, VALUES_OF }; // a pair of tensors

#define ROWS        96  // of a task, at most
#define SPLITS      16  // of a sequence, at most
#define SPLIT_KEYS  256 // at least
#define PACKED_ROWS 16  // what packing a tile costs, in rows

#define BEFORE (-1) // the split of the keys that stand before a sequence

// What an op's instance knows of its attention.
typedef struct attention {
    const berth_cpu *cpu;
    float scale;
    float soft_cap;      // 0: none
    int64_t window;      // 0: none
    int64_t chunk;       // 0: none; never beside a window or keys that stand before
    int64_t width;       // of a query and of a key
    int64_t value_width; // of a value and of a result
    int64_t stride;      // of a row of sums: the value's width in whole panels
    int64_t fewest;      // rows of a head that are worth packing a tile for
    int64_t split;       // rows of a task, at most, whose splits may be computed at the same time
} attention;

// One call: what the kernel sets, then what attend (attention_run.h) makes of it.
typedef struct job {
    const attention *self;
    const berth_tensor *query;     // [tokens, heads, width]
    const berth_tensor *out;       // [tokens, heads, value_width]
    const berth_tensor *cache[2];  // [blocks, block_size, kv_heads, width], of one float dtype, or
                                   // codes of f8_e4m3fn
    const berth_tensor *scales[2]; // f32 [1], of codes; else NULL
    const berth_tensor *before[2]; // [m, kv_heads, width]: seen before position 0, or NULL
    const berth_tensor *sinks;     // [heads], or NULL
    const berth_tensor *slopes;    // [heads] of alibi, or NULL
    const berth_tensor *tables;    // i32 [sequences, blocks of each]
    const int32_t *starts;         // [sequences + 1]: row of the first new token of each
    const int32_t *lengths;        // [sequences]: keys of each
    int64_t sequences;
    berth_span tokens;           // rows of the batch that query and out hold
    const berth_attribute *sees; // per sequence: 0, it sees what comes later; NULL: none does
    char *memory;                // attention_bytes of them
    int64_t group;               // query heads of a head of the cache
    int64_t rows;                // of a head in a task, at most
    int64_t heads;               // of a task, at most
    int64_t cost;                // of all tasks
    int64_t is_split;            // splits are computed at the same time
} job;

// Heads [head, head + heads) of the cache, some rows of each: row r is query head
// `head * group + r % group` of new token r / group of the sequence.
typedef struct task {
    int64_t index;
    int64_t sequence;
    int64_t head;
    int64_t heads;
    int64_t first;  // row
    int64_t rows;   // of each head
    int64_t token;  // row of query of the sequence's first new token
    int64_t start;  // its position
    int64_t length; // keys of the sequence
    int64_t ahead;  // later positions that a row sees
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
    const int64_t head = at->head + row / at->rows;
    const int64_t index = at->first + row % at->rows;
    const int64_t token = at->token + index / in->group;
    return token * in->query->shape[1] + head * in->group + index % in->group;
}

static inline berth_span seen_from(const job *in, const task *at, int64_t position) {
    const int64_t window = in->self->window;
    const int64_t chunk = in->self->chunk;
    return (berth_span){
        .first = window > 0  ? greatest(position - window + 1, 0)
                 : chunk > 0 ? position / chunk * chunk
                             : 0,
        .end = least(at->length, position + 1 + at->ahead),
    };
}

// By any row of the task.
static inline berth_span seen_by_any(const job *in, const task *at) {
    return (berth_span){
        .first = seen_from(in, at, position_of(in, at, 0)).first,
        .end = seen_from(in, at, position_of(in, at, at->rows - 1)).end,
    };
}

// Keys of a split for a row that sees the keys before `end`.
static inline int64_t split_keys(int64_t end) {
    int64_t keys = SPLIT_KEYS;
    while (end > keys * SPLITS) {
        keys *= 2;
    }
    return keys;
}

static inline int64_t split_keys_of(const job *in, const task *at) {
    return split_keys(seen_from(in, at, position_of(in, at, 0)).end);
}

// The splits of the task's rows, which are the same for all.
static inline berth_span splits_of(const job *in, const task *at) {
    const int64_t keys = split_keys_of(in, at);
    const berth_span seen = seen_by_any(in, at);
    return (berth_span){
        .first = in->before[KEYS_OF] ? BEFORE : seen.first / keys,
        .end = pieces(seen.end, keys),
    };
}

static inline berth_span keys_of_split(const job *in, const task *at, int64_t split) {
    const int64_t keys = split_keys_of(in, at);
    const berth_span all = {.first = split * keys, .end = (split + 1) * keys};
    return overlap(all, seen_by_any(in, at));
}

// ---- tasks --------------------------------------------------------------------------------------

static inline int64_t kv_heads(const job *in) {
    return in->cache[KEYS_OF]->shape[2];
}

// Of the rows of the batch that are at hand.
static inline berth_span new_tokens(const job *in, int64_t sequence) {
    const berth_span all = {in->starts[sequence], in->starts[sequence + 1]};
    return overlap(all, in->tokens);
}

static inline int64_t new_rows(const job *in, int64_t sequence) {
    const berth_span tokens = new_tokens(in, sequence);
    return (tokens.end - tokens.first) * in->group;
}

static inline int is_causal(const job *in, int64_t sequence) {
    if (!in->sees || in->sees->kind == BERTH_ATTRIBUTE_NONE || in->sees->count == 0) {
        return 1;
    }
    return in->sees->i64s[least(sequence, (int64_t)in->sees->count - 1)] != 0;
}

// The rows from at->first on and the heads from at->head on, as many as may be together.
static inline void fill_task(const job *in, task *at) {
    const berth_span tokens = new_tokens(in, at->sequence);
    const int64_t window = in->self->window;
    const int64_t rows = new_rows(in, at->sequence);
    at->length = in->lengths[at->sequence];
    at->token = tokens.first - in->tokens.first;
    at->start = at->length - (in->starts[at->sequence + 1] - tokens.first);
    at->ahead = is_causal(in, at->sequence) ? 0 : window > 0 ? window - 1 : at->length;
    const int64_t seen = split_keys_of(in, at) * SPLITS;
    const int64_t alike =
        seen >= at->length ? rows : (seen - at->ahead - at->start) * in->group - at->first;
    at->rows = least(least(rows - at->first, in->rows), alike);
    at->heads = least(least(kv_heads(in) - at->head, in->heads), greatest(ROWS / at->rows, 1));
}

// The next task, from a zeroed one with index −1; 0 when there is none left.
static inline int next_task(const job *in, task *at) {
    at->head += at->heads;
    if (++at->index == 0 || at->head == kv_heads(in)) {
        at->head = 0;
        at->first += at->rows;
    }
    while (at->sequence < in->sequences && at->first == new_rows(in, at->sequence)) {
        at->first = 0;
        ++at->sequence;
    }
    if (at->sequence < in->sequences) {
        fill_task(in, at);
    }
    return at->sequence < in->sequences;
}

static inline int64_t cost_of(const task *at, berth_span keys) {
    return (keys.end - keys.first) * (at->rows + PACKED_ROWS) * at->heads;
}

static inline int may_be_split(const job *in, const task *at) {
    const berth_span splits = splits_of(in, at);
    return at->rows * at->heads <= in->self->split && splits.end - splits.first > 1;
}

#endif
