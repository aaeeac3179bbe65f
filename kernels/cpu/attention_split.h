// SPDX-License-Identifier: Apache-2.0
// What attention does with the keys of one split: tile after tile, for all heads and rows of a
// task. A tile is first read through, as it lies: the heads of a position stand side by side, so
// what one head needs of it is too scattered for the machine to see it coming.
#ifndef BERTH_KERNELS_CPU_ATTENTION_SPLIT_H
#define BERTH_KERNELS_CPU_ATTENTION_SPLIT_H

#include <cpu/attention_block.h>
#include <cpu/attention_room.h>

// A tile on its way through all heads; its lines are keys from `start` on.
typedef struct tile {
    const job *in;
    const task *at;
    const room *with;
    const softmax *to;
    const berth_tensor *const *cache; // keys and values
    const int32_t *blocks;
    int64_t shift; // from a position to what it is counted from here
    int64_t start;
    berth_span lines;      // that any row sees
    berth_span seen[ROWS]; // by each row of a head
    tile_rows rows;        // of the keys, then of the values
} tile;

// ---- preparation --------------------------------------------------------------------------------

// The first of the keys that are left.
static inline void find_lines(tile *self, berth_span keys) {
    self->start = keys.first / KEYS * KEYS;
    self->lines.first = keys.first - self->start;
    self->lines.end = least(keys.end - self->start, KEYS);
    for (int64_t row = 0; row < self->at->rows; ++row) {
        const int64_t position = self->with->positions[row] + self->shift;
        const berth_span seen = seen_from(self->in, self->at, position);
        const berth_span lines = {seen.first - self->start, seen.end - self->start};
        self->seen[row] = overlap(lines, self->lines);
    }
}

static inline void find_block(tile *self, const berth_tensor *cache, int64_t block,
                              berth_span lines) {
    const int64_t bytes = BERTH_DTYPE_BITS(cache->dtype) / 8;
    const int64_t step = cache->strides[1] * bytes;
    const char *row = (const char *)berth_data(cache) +
                      (block * cache->strides[0] + self->at->head * cache->strides[2]) * bytes +
                      (self->start + lines.first) % cache->shape[1] * step;
    for (int64_t line = lines.first; line < lines.end; ++line, row += step) {
        self->rows.at[line] = row;
    }
}

// Where the lines are in a cache; those that nobody sees are where a neighbour is.
static inline void find_rows(tile *self, const berth_tensor *cache) {
    const int64_t size = cache->shape[1];
    const berth_span lines = self->lines;
    for (berth_span some = lines; some.first < lines.end; some.first = some.end) {
        const int64_t key = self->start + some.first;
        some.end = least(lines.end, some.first + size - key % size);
        find_block(self, cache, self->blocks[key / size], some);
    }
    for (int64_t line = 0; line < lines.first; ++line) {
        self->rows.at[line] = self->rows.at[lines.first];
    }
    for (int64_t line = lines.end; line < KEYS; ++line) {
        self->rows.at[line] = self->rows.at[lines.end - 1];
    }
}

// Reads all heads of the lines through.
static inline void fetch_rows(const tile *self, const berth_tensor *cache) {
    const int64_t elements = (self->at->heads - 1) * cache->strides[2] + cache->shape[3];
    const int64_t end = elements * (BERTH_DTYPE_BITS(cache->dtype) / 8);
    for (int64_t line = self->lines.first; line < self->lines.end; ++line) {
        for (int64_t byte = 0; byte < end; byte += 64) {
            (void)*(const volatile char *)(self->rows.at[line] + byte);
        }
    }
}

static inline void find_head(tile *self, const berth_tensor *cache, int64_t head) {
    self->rows.offset = head * cache->strides[2] * (BERTH_DTYPE_BITS(cache->dtype) / 8);
}

// ---- scores -------------------------------------------------------------------------------------

static inline void score_head(const tile *self, berth_dtype dtype, int64_t head) {
    const room *with = self->with;
    const int64_t width = self->in->self->width;
    const int64_t end = (head + 1) * self->at->rows;
    for (int64_t line = self->lines.first / WIDE * WIDE; line < self->lines.end; line += WIDE) {
        pack_keys(&self->rows, line, dtype, width, with->keys);
        for (int64_t row = head * self->at->rows; row < end; row += BERTH_TILE_ROWS) {
            scores_of[least(BERTH_TILE_ROWS, end - row)](
                with->keys, width, with->queries + row * width, with->scores + row * KEYS + line);
        }
    }
}

static inline float per_head(const berth_tensor *values, int64_t query_row, float otherwise) {
    return values ? berth_load_at(berth_data(values), values->dtype, query_row % values->shape[0])
                  : otherwise;
}

static inline void soften_head(const tile *self, int64_t head) {
    const attention *of = self->in->self;
    const berth_tensor *slopes = self->in->slopes;
    for (int64_t row = 0; row < self->at->rows; ++row) {
        const int64_t index = head * self->at->rows + row;
        float *scores = self->with->scores + index * KEYS;
        const adjustment by = {
            .scale = of->scale,
            .soft_cap = of->soft_cap,
            .slope = per_head(slopes, self->with->query_rows[index], 0),
            .distance = (float)(self->with->positions[row] + self->shift - self->start),
        };
        if (self->seen[row].first < self->seen[row].end) {
            adjust(scores, &by);
            softmax_weights(self->to, index, self->seen[row], scores);
        }
    }
}

static inline void score_tile(tile *self) {
    const berth_tensor *cache = self->cache[KEYS_OF];
    find_rows(self, cache);
    self->rows.scale = code_scale(self->in, KEYS_OF);
    fetch_rows(self, cache);
    for (int64_t head = 0; head < self->at->heads; ++head) {
        find_head(self, cache, head);
        score_head(self, cache->dtype, head);
        soften_head(self, head);
    }
}

// ---- values -------------------------------------------------------------------------------------

// Adds the values of some lines, in one panel, to the sums of some rows.
static inline void weigh_lines(berth_span lines, berth_span rows, const weighing *from) {
    weighing some = *from;
    if (lines.first < lines.end) {
        some.panel += lines.first * WIDE;
        some.count = lines.end - lines.first;
        some.weights += rows.first * KEYS + lines.first;
        some.sums += rows.first * some.stride;
        weigh_values[rows.end - rows.first](&some);
    }
}

// The lines that all of a few rows see at once, what only some see row by row, in order. Why not
// all at once, with weights of 0: what a row does not see may be infinite.
static inline void weigh_few(const tile *self, berth_span rows, const weighing *from) {
    const berth_span all = {
        .first = self->seen[rows.end - 1].first,
        .end = greatest(self->seen[rows.end - 1].first, self->seen[rows.first].end),
    };
    const int is_seen_by_all = all.first == self->lines.first && all.end == self->lines.end;
    for (int64_t row = rows.first; row < rows.end && !is_seen_by_all; ++row) {
        const berth_span before = {self->seen[row].first, least(all.first, self->seen[row].end)};
        weigh_lines(before, (berth_span){row, row + 1}, from);
    }
    weigh_lines(all, rows, from);
    for (int64_t row = rows.first; row < rows.end && !is_seen_by_all; ++row) {
        const berth_span after = {greatest(all.end, self->seen[row].first), self->seen[row].end};
        weigh_lines(after, (berth_span){row, row + 1}, from);
    }
}

static inline void weigh_head(const tile *self, berth_dtype dtype, int64_t head) {
    const int64_t rows = self->at->rows;
    const int64_t stride = self->to->stride;
    for (int64_t column = 0; column < stride; column += WIDE) {
        const berth_span columns = {column, self->in->self->value_width};
        const weighing from = {
            .panel = self->with->values,
            .weights = self->with->scores + head * rows * KEYS,
            .sums = self->to->sums + head * rows * stride + column,
            .stride = stride,
        };
        pack_values(&self->rows, self->lines, dtype, columns, self->with->values);
        for (int64_t first = 0; first < rows; first += BERTH_TILE_ROWS) {
            weigh_few(self, (berth_span){first, least(first + BERTH_TILE_ROWS, rows)}, &from);
        }
    }
}

static inline void weigh_tile(tile *self) {
    const berth_tensor *cache = self->cache[VALUES_OF];
    find_rows(self, cache);
    self->rows.scale = code_scale(self->in, VALUES_OF);
    fetch_rows(self, cache);
    for (int64_t head = 0; head < self->at->heads; ++head) {
        find_head(self, cache, head);
        weigh_head(self, cache->dtype, head);
    }
}

// ---- all of it ----------------------------------------------------------------------------------

static inline void attend_keys(tile *self, berth_span keys) {
    for (; keys.first < keys.end; keys.first = self->start + KEYS) {
        find_lines(self, keys);
        score_tile(self);
        weigh_tile(self);
    }
}

// The keys that stand before the sequence: a cache of one block, from which positions are counted.
static inline void attend_before(const tile *of) {
    tile self = *of;
    task at = *of->at;
    berth_tensor views[2];
    int64_t shapes[2][4];
    int64_t strides[2][4];
    const berth_tensor *cache[2] = {&views[KEYS_OF], &views[VALUES_OF]};
    for (int i = 0; i < 2; ++i) {
        views[i] = as_block(of->in->before[i], shapes[i], strides[i]);
    }
    self.cache = cache;
    self.blocks = &only_block;
    self.shift = of->in->before[KEYS_OF]->shape[0];
    self.at = &at;
    at.length = self.shift; // nobody sees farther here
    attend_keys(&self, (berth_span){0, self.shift});
}

static inline void attend_split(const job *in, const task *at, int64_t split, const room *with,
                                const softmax *to) {
    tile self = {
        .in = in,
        .at = at,
        .with = with,
        .to = to,
        .cache = in->cache,
        .blocks = berth_row(in->tables, at->sequence),
    };
    softmax_begin(to);
    if (split == BEFORE) {
        attend_before(&self);
    } else {
        attend_keys(&self, keys_of_split(in, at, split));
    }
}

#endif
