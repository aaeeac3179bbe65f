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
#include <cpu/attention_split.h>
#include <cpu/attention_work.h>
#include <cpu/cpu.h>

#define TASKS 2         // for each thread: with fewer, splits are computed at the same time
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
        self->split = least(greatest(query->dims[1].b, self->fewest), ROWS);
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
    return aligned(softmax_floats(self, self->split));
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const attention *self = state;
    const int64_t threads = self->cpu->threads;
    const int64_t partials = threads > 1 ? threads * TASKS * SPLITS : 0;
    return (uint64_t)(threads * room_bytes(self) + partials * partial_bytes(self));
}

static room room_of(const job *in, const task *at, int64_t part) {
    const attention *self = in->self;
    const int64_t rows = at->heads * at->rows;
    char *from = in->rooms + part * room_bytes(self);
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
    prepare_rows(in, at, &out);
    return out;
}

// ---- tasks --------------------------------------------------------------------------------------

static void store_rows(const job *in, const task *at, const softmax *from) {
    const berth_tensor *out = in->args->outputs[0];
    const berth_tensor *sinks = in->args->inputs[SINKS];
    for (int64_t row = 0; row < from->rows; ++row) {
        const int64_t to = query_row_of(in, at, row);
        if (sinks) {
            softmax_sink(from, row, per_head(sinks, to, 0));
        }
        softmax_store(from, row, berth_row(out, to), out->dtype, in->self->width);
    }
}

static void attend_task(const job *in, const task *at, int64_t part) {
    const room with = room_of(in, at, part);
    const berth_span splits = splits_of(in, at);
    attend_split(in, at, splits.first, &with, &with.whole);
    for (int64_t split = splits.first + 1; split < splits.end; ++split) {
        attend_split(in, at, split, &with, &with.split);
        softmax_merge(&with.whole, &with.split);
    }
    store_rows(in, at, &with.whole);
}

static softmax partial_of(const job *in, const task *at, int64_t split) {
    const int64_t index = at->index * SPLITS + split;
    char *from = in->partials + index * partial_bytes(in->self);
    return softmax_at(in->self, from, at->heads * at->rows);
}

// Work of that cost comes next: whether it is the part's, of which each gets as much as any.
static int is_mine(const job *in, int64_t cost, int64_t *done, berth_span part) {
    const int64_t middle = *done + cost / 2;
    *done += cost;
    return middle * part.end / in->cost == part.first;
}

static void attend_splits(const job *in, const task *at, int64_t *done, berth_span part) {
    const berth_span splits = splits_of(in, at);
    for (int64_t split = splits.first; split < splits.end; ++split) {
        if (is_mine(in, cost_of(at, keys_of_split(in, at, split)), done, part)) {
            const room with = room_of(in, at, part.first);
            const softmax to = partial_of(in, at, split);
            attend_split(in, at, split, &with, &to);
        }
    }
}

static void attend_part(const void *work, int64_t part, int64_t parts) {
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

static void merge_part(const void *work, int64_t part, int64_t parts) {
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
static int64_t count_pieces(const job *in, int64_t *out_tasks) {
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
static void plan(job *in) {
    const attention *self = in->self;
    const int64_t wanted = self->cpu->threads > 1 ? self->cpu->threads * TASKS : 1;
    const int64_t rows = in->args->batch->token_count * in->args->inputs[QUERY]->shape[1];
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
    for (task at = {.index = -1}; next_task(in, &at);) {
        in->cost += cost_of(&at, seen_by_any(in, &at));
    }
}

static void attend(job *in) {
    const berth_cpu *cpu = in->self->cpu;
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
