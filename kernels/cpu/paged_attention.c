// SPDX-License-Identifier: Apache-2.0
// paged_attention: for the new tokens of a sequence and the heads that share one head of the cache,
// some rows at a time, tile after tile of keys with a running softmax. A tile is read from the
// cache once for all rows, whatever its dtype, and used as floats.
//
// The keys of a row are cut into splits, whose results are merged in order. Where a tile and a
// split begin and end follows from positions alone, and no product depends on the rows beside it:
// so the result of a token is the same to the last bit alone and in any batch, with its prompt in
// one piece or in many, on any number of threads, and whether the splits were computed one after
// the other or at the same time, as they are where there are too few rows for all threads.
#include <cpu/attention_softmax.h>
#include <cpu/attention_tile.h>
#include <cpu/attention_work.h>
#include <cpu/cpu.h>

#define TASKS 4         // for each thread: with fewer, splits are computed at the same time
#define ALONE (1 << 16) // so few products are not worth waking other threads

// ---- instances ----------------------------------------------------------------------------------

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_attribute *causal = berth_site_attribute(site, "causal_per_sequence");
    if (site->inputs[SINK_KEY]) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "keys that are in no cache");
    }
    return causal && causal->kind != BERTH_ATTRIBUTE_NONE
               ? BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "sequences that look ahead")
               : BERTH_OK;
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(attention), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *query = site->inputs[QUERY];
        const berth_value_type *key = site->inputs[KEY];
        const int64_t group = query->dims[1].b / (key ? key->dims[1].b : 1);
        attention *self = *out_self;
        self->cpu = device->self;
        self->scale = (float)berth_site_attribute(site, "scale")->f64;
        self->soft_cap = (float)berth_site_attribute(site, "logits_soft_cap")->f64;
        self->window = berth_site_attribute(site, "sliding_window")->i64;
        self->width = query->dims[2].b;
        self->stride = pieces(self->width, WIDE) * WIDE;
        self->fewest = least(greatest(group, BERTH_TILE_ROWS), ROWS);
        self->cache_group = site->cache_group;
    }
    return status;
}

// Of some rows: sums, and largest and total of each.
static int64_t softmax_floats(const attention *self, int64_t rows) {
    return rows * (self->stride + 2);
}

static softmax softmax_at(const attention *self, void *memory, int64_t rows) {
    float *sums = memory;
    return (softmax){
        .sums = sums,
        .largest = sums + rows * self->stride,
        .totals = sums + rows * (self->stride + 1),
        .rows = rows,
        .stride = self->stride,
    };
}

static int64_t aligned(int64_t floats) {
    return pieces(floats * (int64_t)sizeof(float), 64) * 64;
}

// What a part needs: panels of keys and values, queries, scores, and the softmax of a split and of
// all.
static int64_t room_bytes(const attention *self) {
    return aligned(WIDE * self->width) + aligned(KEYS * WIDE) + aligned(ROWS * self->width) +
           aligned(ROWS * KEYS) + 2 * aligned(softmax_floats(self, ROWS));
}

static int64_t partial_bytes(const attention *self) {
    return aligned(softmax_floats(self, self->fewest));
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const attention *self = state;
    const int64_t threads = self->cpu->threads;
    const int64_t partials = threads > 1 ? threads * TASKS * SPLITS : 0;
    return (uint64_t)(threads * room_bytes(self) + partials * partial_bytes(self));
}

// ---- one split ----------------------------------------------------------------------------------

typedef struct room {
    float *keys;
    float *values;
    float *queries; // [width][rows] of every few rows that are multiplied together
    float *scores;  // [rows, KEYS]
    softmax split;
    softmax whole;
} room;

static room room_of(const job *in, int64_t part, int64_t rows) {
    const attention *self = in->self;
    char *at = in->rooms + part * room_bytes(self);
    room out;
    out.keys = (float *)(void *)at;
    at += aligned(WIDE * self->width);
    out.values = (float *)(void *)at;
    at += aligned(KEYS * WIDE);
    out.queries = (float *)(void *)at;
    at += aligned(ROWS * self->width);
    out.scores = (float *)(void *)at;
    at += aligned(ROWS * KEYS);
    out.split = softmax_at(self, at, rows);
    at += aligned(softmax_floats(self, ROWS));
    out.whole = softmax_at(self, at, rows);
    return out;
}

static int64_t query_row(const job *in, const task *at, int64_t row) {
    const int32_t *starts = berth_data(in->batch->query_start_loc);
    const int64_t token = starts[at->sequence] + (at->first + row) / in->group;
    const int64_t head = at->head * in->group + (at->first + row) % in->group;
    return token * in->args->inputs[QUERY]->shape[1] + head;
}

// Why not at once by rows: a column of the few rows stands together, for the broadcast.
static void pack_queries(const job *in, const task *at, float *to) {
    const berth_tensor *query = in->args->inputs[QUERY];
    for (int64_t first = 0; first < at->rows; first += BERTH_TILE_ROWS) {
        const int64_t rows = least(BERTH_TILE_ROWS, at->rows - first);
        float *few = to + first * in->self->width;
        for (int64_t row = 0; row < rows; ++row) {
            const void *from = berth_row(query, query_row(in, at, first + row));
            for (int64_t i = 0; i < in->self->width; ++i) {
                few[i * rows + row] = berth_load_at(from, query->dtype, i);
            }
        }
    }
}

// A tile as the rows of a task see it; lines are keys from `start` on.
typedef struct tile {
    int64_t start;
    berth_span lines;      // that any row sees
    berth_span seen[ROWS]; // by each row
} tile;

static void find_tile(const job *in, const task *at, berth_span keys, tile *out) {
    out->start = keys.first / KEYS * KEYS;
    out->lines.first = keys.first - out->start;
    out->lines.end = least(keys.end - out->start, KEYS);
    for (int64_t row = 0; row < at->rows; ++row) {
        const berth_span seen = seen_by(in, at, row);
        out->seen[row] =
            overlap((berth_span){.first = seen.first - out->start, .end = seen.end - out->start},
                    out->lines);
    }
}

// Where the rows of a cache are that belong to the lines; lines nobody sees have a neighbour's.
static void find_rows(const job *in, const task *at, uint64_t state, int64_t start,
                      berth_span lines, const void *rows[KEYS]) {
    const berth_tensor *cache = in->args->states[state];
    const int32_t *blocks = berth_row(in->batch->block_tables[in->self->cache_group], at->sequence);
    const int64_t size = cache->shape[1];
    const int64_t bytes = BERTH_DTYPE_BITS(cache->dtype) / 8;
    const char *base = (const char *)berth_data(cache) + at->head * cache->strides[2] * bytes;
    for (int64_t line = lines.first; line < lines.end;) {
        const int64_t key = start + line;
        const int64_t end = least(lines.end, line + size - key % size);
        const int64_t element =
            blocks[key / size] * cache->strides[0] + key % size * cache->strides[1];
        const char *row = base + element * bytes;
        for (; line < end; ++line, row += cache->strides[1] * bytes) {
            rows[line] = row;
        }
    }
    for (int64_t line = 0; line < lines.first; ++line) {
        rows[line] = rows[lines.first];
    }
    for (int64_t line = lines.end; line < KEYS; ++line) {
        rows[line] = rows[lines.end - 1];
    }
}

// The rows of a tile, and of the one behind it, or of itself again where there is none.
static void find_tile_rows(const job *in, const task *at, uint64_t state, const tile *of,
                           tile_rows *out) {
    const int64_t end = seen_by_any(in, at).end;
    const int64_t next = of->start + KEYS;
    find_rows(in, at, state, of->start, of->lines, out->at);
    if (next < end) {
        find_rows(in, at, state, next, (berth_span){.end = least(end - next, KEYS)}, out->next);
    } else {
        memcpy(out->next, out->at, sizeof out->next);
    }
}

static float per_head(const berth_tensor *values, int64_t head, float otherwise) {
    return values ? berth_load_at(berth_data(values), values->dtype, head) : otherwise;
}

static void score_tile(const job *in, const task *at, const tile *of, const room *with) {
    const int64_t width = in->self->width;
    tile_rows rows;
    find_tile_rows(in, at, KEY_CACHE, of, &rows);
    for (int64_t line = of->lines.first / WIDE * WIDE; line < of->lines.end; line += WIDE) {
        pack_keys(&rows, line, in->args->states[KEY_CACHE]->dtype, width, with->keys);
        for (int64_t first = 0; first < at->rows; first += BERTH_TILE_ROWS) {
            scores_of[least(BERTH_TILE_ROWS, at->rows - first)](with->keys, width,
                                                                with->queries + first * width,
                                                                with->scores + first * KEYS + line);
        }
    }
}

static void soften_tile(const job *in, const task *at, const tile *of, const room *with,
                        const softmax *to) {
    const attention *self = in->self;
    for (int64_t row = 0; row < at->rows; ++row) {
        float *scores = with->scores + row * KEYS;
        if (of->seen[row].first == of->seen[row].end) {
            continue;
        }
        const int64_t head = query_row(in, at, row) % in->args->inputs[QUERY]->shape[1];
        const adjustment by = {
            .scale = self->scale,
            .soft_cap = self->soft_cap,
            .slope = per_head(in->args->inputs[ALIBI_SLOPES], head, 0),
            .distance = (float)(position_of(in, at, row) - of->start),
        };
        adjust(scores, &by);
        softmax_weights(to, row, of->seen[row], scores);
    }
}

// Adds the values of some lines, in one panel, to the sums of some rows.
static void weigh_lines(berth_span lines, berth_span rows, const weighing *from) {
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
static void weigh_few(const tile *of, berth_span rows, const weighing *from) {
    const berth_span all = {
        .first = of->seen[rows.end - 1].first,
        .end = greatest(of->seen[rows.end - 1].first, of->seen[rows.first].end),
    };
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const berth_span before = {of->seen[row].first, least(all.first, of->seen[row].end)};
        weigh_lines(before, (berth_span){row, row + 1}, from);
    }
    weigh_lines(all, rows, from);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const berth_span after = {greatest(all.end, of->seen[row].first), of->seen[row].end};
        weigh_lines(after, (berth_span){row, row + 1}, from);
    }
}

static void weigh_tile(const job *in, const task *at, const tile *of, const room *with,
                       const softmax *to) {
    const berth_dtype dtype = in->args->states[VALUE_CACHE]->dtype;
    tile_rows rows;
    find_tile_rows(in, at, VALUE_CACHE, of, &rows);
    for (int64_t column = 0; column < to->stride; column += WIDE) {
        const berth_span columns = {column, in->self->width};
        pack_values(&rows, of->lines, dtype, columns, with->values);
        const weighing from = {
            .panel = with->values,
            .weights = with->scores,
            .sums = to->sums + column,
            .stride = to->stride,
        };
        for (int64_t first = 0; first < at->rows; first += BERTH_TILE_ROWS) {
            weigh_few(of, (berth_span){first, least(first + BERTH_TILE_ROWS, at->rows)}, &from);
        }
    }
}

static void attend_split(const job *in, const task *at, int64_t split, const room *with,
                         const softmax *to) {
    berth_span keys = keys_of_split(in, at, split);
    softmax_begin(to);
    for (tile of; keys.first < keys.end; keys.first = of.start + KEYS) {
        find_tile(in, at, keys, &of);
        score_tile(in, at, &of, with);
        soften_tile(in, at, &of, with, to);
        weigh_tile(in, at, &of, with, to);
    }
}

// ---- all tasks ----------------------------------------------------------------------------------

static void store_rows(const job *in, const task *at, const softmax *from) {
    const berth_tensor *out = in->args->outputs[0];
    const berth_tensor *sinks = in->args->inputs[SINKS];
    for (int64_t row = 0; row < at->rows; ++row) {
        const int64_t to = query_row(in, at, row);
        if (sinks) {
            softmax_sink(from, row, per_head(sinks, to % out->shape[1], 0));
        }
        softmax_store(from, row, berth_row(out, to), out->dtype, in->self->width);
    }
}

static void attend_task(const job *in, const task *at, const room *with) {
    const berth_span splits = splits_of(in, at);
    pack_queries(in, at, with->queries);
    attend_split(in, at, splits.first, with, &with->whole);
    for (int64_t split = splits.first + 1; split < splits.end; ++split) {
        attend_split(in, at, split, with, &with->split);
        softmax_merge(&with->whole, &with->split);
    }
    store_rows(in, at, &with->whole);
}

static softmax partial_of(const job *in, const task *at, int64_t split) {
    const int64_t index = at->index * SPLITS + split;
    return softmax_at(in->self, in->partials + index * partial_bytes(in->self), at->rows);
}

// Whether the next piece of work, of that cost, is the part's, of which each gets as much as any.
static int is_mine(const job *in, int64_t cost, int64_t *done, int64_t part, int64_t parts) {
    const int64_t middle = *done + cost / 2;
    *done += cost;
    return middle * parts / in->cost == part;
}

static void attend_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    int64_t done = 0;
    for (task at = {.index = -1}; next_task(in, &at);) {
        const room own = room_of(in, part, at.rows);
        if (!is_split(in, &at)) {
            if (is_mine(in, cost_of(&at, seen_by_any(in, &at)), &done, part, parts)) {
                attend_task(in, &at, &own);
            }
            continue;
        }
        const berth_span splits = splits_of(in, &at);
        for (int64_t split = splits.first; split < splits.end; ++split) {
            if (is_mine(in, cost_of(&at, keys_of_split(in, &at, split)), &done, part, parts)) {
                const softmax to = partial_of(in, &at, split);
                pack_queries(in, &at, own.queries);
                attend_split(in, &at, split, &own, &to);
            }
        }
    }
}

static void merge_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    for (task at = {.index = -1}; next_task(in, &at);) {
        if (at.index % parts != part || !is_split(in, &at)) {
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

// How the work is cut. Fewer rows at a time where that gives every thread something to do.
static void plan(job *in) {
    const attention *self = in->self;
    const int64_t threads = self->cpu->threads;
    const int64_t rows = in->args->batch->token_count * in->args->inputs[QUERY]->shape[1];
    const int64_t share = pieces(rows, threads * TASKS) / BERTH_TILE_ROWS * BERTH_TILE_ROWS;
    int64_t tasks = 0;
    in->at_once = least(greatest(share, self->fewest), ROWS);
    for (task at = {.index = -1}; next_task(in, &at); ++tasks) {
        in->cost += cost_of(&at, seen_by_any(in, &at));
    }
    in->is_split = threads > 1 && tasks < threads * TASKS;
}

static void attend(const job *in) {
    const berth_cpu *cpu = in->self->cpu;
    if (in->cost * in->self->width < ALONE) {
        job alone = *in;
        alone.is_split = 0;
        attend_part(&alone, 0, 1);
        return;
    }
    cpu->run(cpu, attend_part, in);
    if (in->is_split) {
        cpu->run(cpu, merge_part, in);
    }
}

// ---- the cache ----------------------------------------------------------------------------------

static void store_head(const void *from, berth_dtype dtype, const berth_tensor *cache,
                       int64_t cache_row) {
    void *to = berth_row(cache, cache_row);
    const int64_t width = cache->shape[3];
    if (dtype == cache->dtype) {
        memcpy(to, from, (size_t)width * BERTH_DTYPE_BITS(dtype) / 8);
        return;
    }
    for (int64_t i = 0; i < width; ++i) {
        berth_store_at(to, cache->dtype, i, berth_load_at(from, dtype, i));
    }
}

static void store(const job *in, uint64_t input, uint64_t state, berth_span tokens) {
    const berth_tensor *from = in->args->inputs[input];
    const berth_tensor *cache = in->args->states[state];
    const int64_t *slots = berth_data(in->batch->slot_mappings[in->self->cache_group]);
    const int64_t heads = cache->shape[2];
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        for (int64_t head = 0; head < heads && slots[token] >= 0; ++head) {
            store_head(berth_row(from, token * heads + head), from->dtype, cache,
                       slots[token] * heads + head);
        }
    }
}

static void store_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_span tokens = berth_share(in->args->inputs[KEY]->shape[0], part, parts);
    store(in, KEY, KEY_CACHE, tokens);
    store(in, VALUE, VALUE_CACHE, tokens);
}

static void store_new(const job *in) {
    const berth_tensor *key = in->args->inputs[KEY];
    const berth_cpu *cpu = in->self->cpu;
    if (key && key->shape[0] * key->shape[1] * key->shape[2] < ALONE) {
        store_part(in, 0, 1);
    } else if (key) {
        cpu->run(cpu, store_part, in);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const attention *self = state;
    const berth_tensor *keys = args->states[KEY_CACHE];
    job in = {.self = self, .args = args, .batch = args->batch ? args->batch->host : NULL};
    if (!in.batch) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "paged_attention: needs a batch");
    }
    if (!berth_is_float(keys->dtype) || args->states[VALUE_CACHE]->dtype != keys->dtype) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_UNSUPPORTED,
                                 "paged_attention: the caches are not of one float dtype");
    }
    in.group = args->inputs[QUERY]->shape[1] / keys->shape[2];
    in.rooms = berth_data(args->workspace);
    in.partials = in.rooms + self->cpu->threads * room_bytes(self);
    store_new(&in);
    plan(&in);
    if (in.cost > 0) {
        attend(&in);
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_paged_attention = {
    .size = sizeof(berth_op_impl),
    .op = "paged_attention",
    .name = "cpu.paged_attention",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 2,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
