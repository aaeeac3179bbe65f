// SPDX-License-Identifier: Apache-2.0
// paged_attention in float32, one sweep over the keys of a head: a tile of scores at a time, the
// weighted sum of the values so far being rescaled when a larger score turns up. The sum is built
// in the output's own row, so that no scratch is needed however long the sequence is.
#include <cpu/cpu.h>

#include <math.h>

enum { QUERY, KEY, VALUE, SINKS, ALIBI_SLOPES };
enum { KEY_CACHE, VALUE_CACHE };

#define TILE 64 // scores of a tile

typedef struct attention {
    const berth_host *host;
    float scale;
    float soft_cap; // 0: none
    int64_t window; // 0: none
    uint64_t cache_group;
} attention;

// One query head of one token and the running state of its softmax.
typedef struct attending {
    const float *query;    // [d]
    float *out;            // [d], the weighted sum of the values so far
    const int32_t *blocks; // block table of the sequence
    const char *keys;      // this head's row in the first slot of block 0
    const char *values;
    int64_t position;
    int64_t width; // d
    float slope;   // of alibi
    float largest;
    float total;
} attending;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    const berth_status status = berth_instance_new(site, sizeof(attention), out_self);
    if (status == BERTH_OK) {
        attention *self = *out_self;
        self->scale = (float)berth_site_attribute(site, "scale")->f64;
        self->soft_cap = (float)berth_site_attribute(site, "logits_soft_cap")->f64;
        self->window = berth_site_attribute(site, "sliding_window")->i64;
        self->cache_group = site->cache_group;
    }
    return status;
}

// The row of `position` in a cache whose first row of this head is `base`.
static const float *row_at(const attending *head, const berth_tensor *cache, const char *base,
                           int64_t position) {
    const int64_t block = head->blocks[position / cache->shape[1]];
    const int64_t offset =
        block * cache->strides[0] + position % cache->shape[1] * cache->strides[1];
    return (const float *)(const void *)(base + offset * (int64_t)sizeof(float));
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
        head->out[i] *= factor;
    }
    head->total *= factor;
    head->largest = largest;
}

static void add_weighted(const float *restrict value, float weight, float *restrict out,
                         int64_t width) {
    for (int64_t i = 0; i < width; ++i) {
        out[i] += weight * value[i];
    }
}

// Takes the keys [first, first + count) in, count at most TILE.
static void attend_tile(const attention *self, attending *head, const berth_op_args *args,
                        int64_t first, int64_t count) {
    float scores[TILE];
    float largest = head->largest;
    for (int64_t i = 0; i < count; ++i) {
        const float *key = row_at(head, args->states[KEY_CACHE], head->keys, first + i);
        const float score = berth_dot_f32(head->query, key, head->width) * self->scale;
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
        head->total += scores[i];
        add_weighted(row_at(head, args->states[VALUE_CACHE], head->values, first + i), scores[i],
                     head->out, head->width);
    }
}

static void attend(const attention *self, attending *head, const berth_op_args *args,
                   int64_t index) {
    const berth_tensor *sinks = args->inputs[SINKS];
    const berth_tensor *slopes = args->inputs[ALIBI_SLOPES];
    const int64_t first =
        self->window > 0 && head->position >= self->window ? head->position - self->window + 1 : 0;
    head->slope = slopes ? ((const float *)berth_data(slopes))[index] : 0;
    head->largest = sinks ? ((const float *)berth_data(sinks))[index] : -INFINITY;
    head->total = sinks ? 1.0f : 0.0f;
    memset(head->out, 0, (size_t)head->width * sizeof(float));
    for (int64_t j = first; j <= head->position; j += TILE) {
        const int64_t left = head->position + 1 - j;
        attend_tile(self, head, args, j, left < TILE ? left : TILE);
    }
    for (int64_t i = 0; i < head->width; ++i) {
        head->out[i] /= head->total;
    }
}

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
    attending head = {
        .blocks = berth_row(batch->block_tables[self->cache_group], sequence),
        .width = query->shape[2],
    };
    for (int64_t row = starts[sequence]; row < starts[sequence + 1]; ++row) {
        head.position = length - (starts[sequence + 1] - row);
        for (int64_t index = 0; index < heads; ++index) {
            head.query = berth_row(query, row * heads + index);
            head.out = berth_row(args->outputs[0], row * heads + index);
            head.keys = berth_row(keys, index / group);
            head.values = berth_row(values, index / group);
            attend(self, &head, args, index);
        }
    }
}

static void store(const berth_tensor *from, const berth_tensor *cache, const int64_t *slots) {
    const int64_t heads = cache->shape[2];
    for (int64_t row = 0; row < from->shape[0]; ++row) {
        for (int64_t head = 0; head < heads && slots[row] >= 0; ++head) {
            memcpy(berth_row(cache, slots[row] * heads + head), berth_row(from, row * heads + head),
                   (size_t)cache->shape[3] * sizeof(float));
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
    if (args->states[KEY_CACHE]->dtype != BERTH_DTYPE_F32) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_UNSUPPORTED,
                                 "paged_attention: the cache is not float32");
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
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = berth_supports_f32,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
