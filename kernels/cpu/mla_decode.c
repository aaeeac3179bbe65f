// SPDX-License-Identifier: Apache-2.0
// mla_decode: a head of a sequence sweeps its latent rows once, the sum so far being rescaled when
// a larger score turns up. A part has a span of heads of all sequences.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <sequences.h>

enum { QUERY, BLOCK_TABLE, SEQ_LENS };

typedef struct decode {
    const berth_host *host;
    const berth_cpu *cpu;
    uint64_t cache_group;
    float scale;
    int64_t latent;
    int64_t room; // floats of a part
} decode;

typedef struct job {
    const decode *self;
    const berth_op_args *args;
    const berth_tensor *table;
    const berth_tensor *lengths;
    int64_t width; // of a cache row
} job;

static int64_t rounded(int64_t width) {
    return (width + BERTH_LANES - 1) / BERTH_LANES * BERTH_LANES;
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(decode), out_self);
    if (status == BERTH_OK) {
        decode *self = *out_self;
        self->cpu = device->self;
        self->cache_group = site->cache_group;
        self->scale = (float)berth_site_attribute(site, "scale")->f64;
        self->latent = berth_site_attribute(site, "kv_lora_rank")->i64;
        self->room = 2 * rounded(site->inputs[QUERY]->dims[2].b);
    }
    return status;
}

// Query and sum of every part, as floats.
static uint64_t workspace(void *state, uint64_t tokens) {
    const decode *self = state;
    (void)tokens;
    return (uint64_t)(self->cpu->threads * self->room) * sizeof(float);
}

BERTH_INLINE float dot(const float *query, const void *key, int64_t width, berth_dtype dtype) {
    berth_vec sum = berth_vec_of(0);
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        sum = berth_vec_fma(berth_vec_load(query + i), berth_vec_load_some(key, dtype, i, width),
                            sum);
    }
    return berth_vec_sum(sum);
}

// sum ← sum · by[0] + row · by[1].
BERTH_INLINE void add(float *sum, const float *by, const void *row, int64_t width,
                      berth_dtype dtype) {
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        const berth_vec value = berth_vec_load_some(row, dtype, i, width);
        berth_vec_store(sum + i, berth_vec_fma(value, berth_vec_of(by[1]),
                                               berth_vec_load(sum + i) * berth_vec_of(by[0])));
    }
}

BERTH_INLINE float sweep(const job *in, const float *query, float *sum, int64_t sequence,
                         berth_dtype dtype) {
    const berth_tensor *cache = in->args->states[0];
    const void *blocks = berth_row(in->table, sequence);
    const int64_t length = berth_integer_at(berth_data(in->lengths), in->lengths->dtype, sequence);
    float largest = -INFINITY;
    float total = 0;
    for (int64_t j = 0; j < length; ++j) {
        const int64_t block = berth_integer_at(blocks, in->table->dtype, j / cache->shape[1]);
        const void *row = berth_row(cache, block * cache->shape[1] + j % cache->shape[1]);
        const float score = in->self->scale * dot(query, row, in->width, dtype);
        const float factor = score > largest ? berth_exp_f32(largest - score) : 1.0f;
        largest = score > largest ? score : largest;
        const float weight = berth_exp_f32(score - largest);
        const float by[2] = {factor, weight};
        add(sum, by, row, in->self->latent, dtype);
        total = total * factor + weight;
    }
    return total;
}

static void decode_head(const job *in, int64_t row, float *query, float *sum) {
    const berth_tensor *q = in->args->inputs[QUERY];
    const berth_tensor *y = in->args->outputs[0];
    const berth_dtype dtype = in->args->states[0]->dtype;
    const int64_t sequence = row / q->shape[1];
    memset(query, 0, (size_t)in->self->room * sizeof *query);
    berth_load(berth_row(q, row), q->dtype, 0, in->width, query);
    const float total = dtype == BERTH_DTYPE_F32 ? sweep(in, query, sum, sequence, BERTH_DTYPE_F32)
                        : dtype == BERTH_DTYPE_BF16
                            ? sweep(in, query, sum, sequence, BERTH_DTYPE_BF16)
                            : sweep(in, query, sum, sequence, BERTH_DTYPE_F16);
    for (int64_t i = 0; i < in->self->latent; ++i) {
        sum[i] = total > 0 || total != total ? sum[i] / total : 0;
    }
    berth_store(berth_row(y, row), y->dtype, 0, in->self->latent, sum);
}

static void decode_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *q = in->args->inputs[QUERY];
    const berth_span span = berth_share(q->shape[0] * q->shape[1], part, parts);
    float *query = (float *)berth_data(in->args->workspace) + part * in->self->room;
    for (int64_t row = span.first; row < span.end; ++row) {
        decode_head(in, row, query, query + in->self->room / 2);
    }
}

static berth_status check(const decode *self, const job *in, int64_t *out_elements) {
    const berth_tensor *cache = in->args->states[0];
    const berth_tensor *q = in->args->inputs[QUERY];
    const int64_t most = in->table->shape[1] * cache->shape[1];
    if (q->shape[0] > in->lengths->shape[0]) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "mla_decode: %lld queries for %lld sequences",
                                 (long long)q->shape[0], (long long)in->lengths->shape[0]);
    }
    for (int64_t i = 0; i < q->shape[0]; ++i) {
        const int64_t length = berth_integer_at(berth_data(in->lengths), in->lengths->dtype, i);
        if (length > most) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "mla_decode: sequence %lld of %lld tokens has %lld blocks",
                                     (long long)i, (long long)length,
                                     (long long)in->table->shape[1]);
        }
        *out_elements += 2 * length * q->shape[1] * in->width;
    }
    return BERTH_STATE_CHECK(self->host, "mla_decode", cache, cache->shape[1], in->width);
}

static berth_status forward(void *state, const berth_op_args *args) {
    const decode *self = state;
    const berth_batch_view *view = args->batch ? args->batch->host : NULL;
    const berth_tensor *table = args->inputs[BLOCK_TABLE];
    if (!table && !view) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "mla_decode: needs a batch or 'block_table'");
    }
    const job in = {
        .self = self,
        .args = args,
        .table = table ? table : view->block_tables[self->cache_group],
        .lengths = table ? args->inputs[SEQ_LENS] : view->seq_lens,
        .width = berth_row_length(args->inputs[QUERY]),
    };
    int64_t elements = 0;
    const berth_status status = check(self, &in, &elements);
    if (status == BERTH_OK) {
        berth_run(self->cpu, decode_part, &in, elements);
    }
    return status;
}

const berth_op_impl berth_kernel_mla_decode = {
    .size = sizeof(berth_op_impl),
    .op = "mla_decode",
    .name = "cpu.mla_decode",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
