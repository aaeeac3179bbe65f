// SPDX-License-Identifier: Apache-2.0
// paged_attention, one sweep over the keys of a head: a tile of scores at a time, the weighted sum
// of the values so far being rescaled when a larger score turns up. Query and sum are float32 in
// the workspace, of a size that no sequence changes; the cache may have any float dtype.
#include <cpu/cpu.h>

#include <math.h>

enum { QUERY, KEY, VALUE, SINKS, ALIBI_SLOPES, SINK_KEY };
enum { KEY_CACHE, VALUE_CACHE };

#define TILE 64 // scores of a tile

typedef struct attention {
    const berth_host *host;
    float scale;
    float soft_cap; // 0: none
    int64_t window; // 0: none
    int64_t width;  // of a head
    uint64_t cache_group;
} attention;

// One query head of one token and the running state of its softmax.
typedef struct attending {
    float *query;          // [d]
    float *sum;            // [d], of the weighted values so far
    const int32_t *blocks; // block table of the sequence
    const char *keys;      // this head's row in the first slot of block 0
    const char *values;
    int64_t position;
    int64_t width;     // d
    berth_dtype dtype; // of the caches
    float slope;       // of alibi
    float largest;
    float total;
} attending;

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
    (void)device;
    const berth_status status = berth_instance_new(site, sizeof(attention), out_self);
    if (status == BERTH_OK) {
        attention *self = *out_self;
        self->scale = (float)berth_site_attribute(site, "scale")->f64;
        self->soft_cap = (float)berth_site_attribute(site, "logits_soft_cap")->f64;
        self->window = berth_site_attribute(site, "sliding_window")->i64;
        self->width = site->inputs[QUERY]->dims[2].b;
        self->cache_group = site->cache_group;
    }
    return status;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)((const attention *)state)->width * 2 * sizeof(float);
}

// ---- one head -----------------------------------------------------------------------------------

// The row of `position` in a cache whose first row of this head is `base`.
static const void *row_at(const attending *head, const berth_tensor *cache, const char *base,
                          int64_t position) {
    const int64_t block = head->blocks[position / cache->shape[1]];
    const int64_t offset =
        block * cache->strides[0] + position % cache->shape[1] * cache->strides[1];
    return base + offset * (int64_t)(BERTH_DTYPE_BITS(cache->dtype) / 8);
}

static float adjusted(const attention *self, const attending *head, float score, int64_t distance) {
    if (self->soft_cap > 0) {
        score = self->soft_cap * tanhf(score / self->soft_cap);
    }
    return score - head->slope * (float)distance;
}

static void rescale(attending *head, float largest) {
    const float factor = berth_exp_f32(head->largest - largest);
    for (int64_t i = 0; i < head->width; ++i) {
        head->sum[i] *= factor;
    }
    head->total *= factor;
    head->largest = largest;
}

// In sixteen partial sums, which the compiler keeps in vector registers.
BERTH_INLINE float dot_as(const float *a, const void *b, berth_dtype dtype, int64_t count) {
    float sums[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (int64_t lane = 0; lane < 16; ++lane) {
            sums[lane] += a[i + lane] * berth_load_at(b, dtype, i + lane);
        }
    }
    float sum = 0;
    for (int64_t lane = 0; lane < 16; ++lane) {
        sum += sums[lane];
    }
    for (; i < count; ++i) {
        sum += a[i] * berth_load_at(b, dtype, i);
    }
    return sum;
}

static float dot(const attending *head, const void *key) {
    return head->dtype == BERTH_DTYPE_F32 ? dot_as(head->query, key, BERTH_DTYPE_F32, head->width)
           : head->dtype == BERTH_DTYPE_BF16
               ? dot_as(head->query, key, BERTH_DTYPE_BF16, head->width)
               : dot_as(head->query, key, BERTH_DTYPE_F16, head->width);
}

BERTH_INLINE void add_as(float *sum, float weight, const void *value, berth_dtype dtype,
                         int64_t width) {
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < width; ++i) {
        sum[i] += weight * berth_load_at(value, dtype, i);
    }
}

static void add_weighted(attending *head, float weight, const void *value) {
    head->total += weight;
    if (head->dtype == BERTH_DTYPE_F32) {
        add_as(head->sum, weight, value, BERTH_DTYPE_F32, head->width);
    } else if (head->dtype == BERTH_DTYPE_BF16) {
        add_as(head->sum, weight, value, BERTH_DTYPE_BF16, head->width);
    } else {
        add_as(head->sum, weight, value, BERTH_DTYPE_F16, head->width);
    }
}

// Takes the keys [first, first + count) in, count at most TILE.
static void attend_tile(const attention *self, attending *head, const berth_op_args *args,
                        int64_t first, int64_t count) {
    float scores[TILE];
    float largest = head->largest;
    for (int64_t i = 0; i < count; ++i) {
        const void *key = row_at(head, args->states[KEY_CACHE], head->keys, first + i);
        const float score = dot(head, key) * self->scale;
        scores[i] = adjusted(self, head, score, head->position - first - i);
        largest = fmaxf(largest, scores[i]);
    }
    if (largest > head->largest) {
        rescale(head, largest);
    }
    for (int64_t i = 0; i < count; ++i) {
        scores[i] = berth_exp_f32(scores[i] - largest);
    }
    for (int64_t i = 0; i < count; ++i) {
        const void *value = row_at(head, args->states[VALUE_CACHE], head->values, first + i);
        add_weighted(head, scores[i], value);
    }
}

static float per_head(const berth_tensor *values, int64_t index, float otherwise) {
    return values ? berth_load_at(berth_data(values), values->dtype, index) : otherwise;
}

static void attend(const attention *self, attending *head, const berth_op_args *args,
                   int64_t index) {
    const berth_tensor *sinks = args->inputs[SINKS];
    const int64_t first =
        self->window > 0 && head->position >= self->window ? head->position - self->window + 1 : 0;
    head->slope = per_head(args->inputs[ALIBI_SLOPES], index, 0);
    head->largest = per_head(sinks, index, -INFINITY);
    head->total = sinks ? 1.0f : 0.0f;
    memset(head->sum, 0, (size_t)head->width * sizeof(float));
    for (int64_t j = first; j <= head->position; j += TILE) {
        const int64_t left = head->position + 1 - j;
        attend_tile(self, head, args, j, left < TILE ? left : TILE);
    }
    for (int64_t i = 0; i < head->width; ++i) {
        head->sum[i] /= head->total;
    }
}

// ---- the batch ----------------------------------------------------------------------------------

// All heads of the new tokens of one sequence.
static void attend_sequence(const attention *self, const berth_op_args *args, int64_t sequence) {
    const berth_batch_view *batch = args->batch->host;
    const berth_tensor *query = args->inputs[QUERY];
    const berth_tensor *keys = args->states[KEY_CACHE];
    const berth_tensor *values = args->states[VALUE_CACHE];
    const int64_t heads = query->shape[1];
    const int64_t group = heads / keys->shape[2];
    const int32_t *starts = berth_data(batch->query_start_loc);
    const int32_t length = ((const int32_t *)berth_data(batch->seq_lens))[sequence];
    float *room = berth_data(args->workspace);
    attending head = {
        .query = room,
        .sum = room + query->shape[2],
        .dtype = keys->dtype,
        .blocks = berth_row(batch->block_tables[self->cache_group], sequence),
        .width = query->shape[2],
    };
    for (int64_t row = starts[sequence]; row < starts[sequence + 1]; ++row) {
        head.position = length - (starts[sequence + 1] - row);
        for (int64_t index = 0; index < heads; ++index) {
            berth_load(berth_row(query, row * heads + index), query->dtype, 0, head.width,
                       head.query);
            head.keys = berth_row(keys, index / group);
            head.values = berth_row(values, index / group);
            attend(self, &head, args, index);
            berth_store(berth_row(args->outputs[0], row * heads + index), query->dtype, 0,
                        head.width, head.sum);
        }
    }
}

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

static void store(const berth_tensor *from, const berth_tensor *cache, const int64_t *slots) {
    const int64_t heads = cache->shape[2];
    for (int64_t row = 0; row < from->shape[0]; ++row) {
        for (int64_t head = 0; head < heads && slots[row] >= 0; ++head) {
            store_head(berth_row(from, row * heads + head), from->dtype, cache,
                       slots[row] * heads + head);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const attention *self = state;
    const berth_batch_view *batch = args->batch ? args->batch->host : NULL;
    if (!batch) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "paged_attention: needs a batch");
    }
    const berth_dtype dtype = args->states[KEY_CACHE]->dtype;
    if (!berth_is_float(dtype) || args->states[VALUE_CACHE]->dtype != dtype) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_UNSUPPORTED,
                                 "paged_attention: the caches are not of one float dtype");
    }
    if (args->inputs[KEY]) {
        const int64_t *slots = berth_data(batch->slot_mappings[self->cache_group]);
        store(args->inputs[KEY], args->states[KEY_CACHE], slots);
        store(args->inputs[VALUE], args->states[VALUE_CACHE], slots);
    }
    for (int64_t sequence = 0; sequence < args->batch->sequence_count; ++sequence) {
        attend_sequence(self, args, sequence);
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
