// SPDX-License-Identifier: Apache-2.0
// paged_attention: the new keys and values to the cache, then attention_run.h over it.
#include <cpu/attention_run.h>
#include <cpu/fp8_codes.h>

enum {
    QUERY,
    KEY,
    VALUE,
    SINKS,
    ALIBI_SLOPES,
    SINK_KEY,
    SINK_VALUE,
    KEY_SCALE, // of state KEY_CACHE
    VALUE_SCALE,
};
enum { KEY_CACHE, VALUE_CACHE };

typedef struct paged {
    const berth_host *host;
    attention of;
    uint64_t cache_group;
    const berth_attribute *sees;
} paged;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(paged), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *query = site->inputs[QUERY];
        const berth_value_type *key = site->inputs[KEY];
        const int64_t width = query->dims[2].b;
        paged *self = *out_self;
        self->of.cpu = device->self;
        self->of.scale = (float)berth_site_attribute(site, "scale")->f64;
        self->of.soft_cap = (float)berth_site_attribute(site, "logits_soft_cap")->f64;
        self->of.window = berth_site_attribute(site, "sliding_window")->i64;
        attention_size(&self->of, query->dims[1].b, key ? key->dims[1].b : 1, width, width);
        self->cache_group = site->cache_group;
        const berth_attribute *chunk = berth_site_attribute(site, "chunk_size");
        self->of.chunk = chunk && chunk->kind == BERTH_ATTRIBUTE_I64 ? chunk->i64 : 0;
        self->sees = berth_site_attribute(site, "causal_per_sequence");
    }
    return status;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return attention_bytes(&((const paged *)state)->of);
}

// ---- the cache ----------------------------------------------------------------------------------

typedef struct storing {
    const berth_op_args *args;
    const int64_t *slots;
} storing;

// A row as the cache has it; `scale` of codes, else NULL.
static void store_row(void *to, const void *from, const berth_tensor *cache, berth_dtype dtype,
                      const berth_tensor *scale) {
    const int64_t width = cache->shape[3];
    if (!scale) {
        berth_vec_copy(to, cache->dtype, from, dtype, width);
        return;
    }
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        vec_store_f8(to, i, width, berth_vec_load_some(from, dtype, i, width),
                     *(const float *)berth_data(scale));
    }
}

static void store(const storing *in, uint64_t state, berth_span tokens) {
    const berth_tensor *from = in->args->inputs[KEY + state];
    const berth_tensor *cache = in->args->states[state];
    const int64_t heads = cache->shape[2];
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        for (int64_t head = 0; head < heads && in->slots[token] >= 0; ++head) {
            store_row(berth_row(cache, in->slots[token] * heads + head),
                      berth_row(from, token * heads + head), cache, from->dtype,
                      in->args->inputs[KEY_SCALE + state]);
        }
    }
}

static void store_part(const void *work, int64_t part, int64_t parts) {
    const storing *in = work;
    const berth_span tokens = berth_share(in->args->inputs[KEY]->shape[0], part, parts);
    store(in, KEY_CACHE, tokens);
    store(in, VALUE_CACHE, tokens);
}

static void store_new(const paged *self, const berth_op_args *args) {
    const berth_tensor *key = args->inputs[KEY];
    const berth_batch_view *batch = args->batch->host;
    const storing in = {args, berth_data(batch->slot_mappings[self->cache_group])};
    if (key) {
        berth_run(self->of.cpu, store_part, &in, key->shape[0] * key->shape[1] * key->shape[2]);
    }
}

// Both of one float dtype, or of codes with their scales.
static int has_right_caches(const berth_op_args *args) {
    const berth_dtype dtype = args->states[KEY_CACHE]->dtype;
    const int has_codes = dtype == BERTH_DTYPE_F8_E4M3FN;
    return (has_codes || berth_is_float(dtype)) && args->states[VALUE_CACHE]->dtype == dtype &&
           has_codes == (args->inputs[KEY_SCALE] != NULL) &&
           has_codes == (args->inputs[VALUE_SCALE] != NULL);
}

static berth_status forward(void *state, const berth_op_args *args) {
    const paged *self = state;
    const berth_batch_view *batch = args->batch ? args->batch->host : NULL;
    if (!batch) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "paged_attention: needs a batch");
    }
    if (!has_right_caches(args)) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_UNSUPPORTED,
                                 "paged_attention: the caches are not of one float dtype, nor of "
                                 "f8_e4m3fn with scales");
    }
    store_new(self, args);
    job in = {
        .self = &self->of,
        .query = args->inputs[QUERY],
        .out = args->outputs[0],
        .cache = {args->states[KEY_CACHE], args->states[VALUE_CACHE]    },
        .scales = {args->inputs[KEY_SCALE], args->inputs[VALUE_SCALE]    },
        .before = {args->inputs[SINK_KEY],  args->inputs[SINK_VALUE]     },
        .sinks = args->inputs[SINKS],
        .slopes = args->inputs[ALIBI_SLOPES],
        .tables = batch->block_tables[self->cache_group],
        .starts = berth_data(batch->query_start_loc),
        .lengths = berth_data(batch->seq_lens),
        .sequences = args->batch->sequence_count,
        .tokens = {0,                       args->inputs[QUERY]->shape[0]},
        .sees = self->sees,
        .memory = berth_data(args->workspace),
    };
    attend(&in);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_paged_attention = {
    .size = sizeof(berth_op_impl),
    .op = "paged_attention",
    .name = "cpu.paged_attention",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 4,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
