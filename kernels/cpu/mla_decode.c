// SPDX-License-Identifier: Apache-2.0
// mla_decode: attention (attention_run.h) of one token a sequence to rows that serve all heads, as
// keys and, with their first columns, as values: so a row is read once for all heads.
#include <cpu/attention_run.h>

#include <sequences.h>

#include <assert.h>

enum { QUERY, BLOCK_TABLE, SEQ_LENS };

typedef struct decode {
    const berth_host *host;
    attention of;
    uint64_t cache_group;
    int64_t latent;
    int64_t sequences; // at most
    int64_t blocks;    // of a table that has to be copied, at most
} decode;

// What attention wants as i32, copied.
typedef struct copies {
    char *memory; // for attention
    int32_t *starts;
    int32_t *lengths;
    int32_t *blocks;
} copies;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(decode), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *query = site->inputs[QUERY];
        const berth_value_type *table = site->inputs[BLOCK_TABLE];
        const int is_copied = table && table->dtype != BERTH_DTYPE_I32;
        decode *self = *out_self;
        self->of.cpu = device->self;
        self->of.scale = (float)berth_site_attribute(site, "scale")->f64;
        self->cache_group = site->cache_group;
        self->latent = berth_site_attribute(site, "kv_lora_rank")->i64;
        self->sequences = dim_most(site, query->dims[0]);
        self->blocks =
            is_copied ? dim_most(site, table->dims[0]) * dim_most(site, table->dims[1]) : 0;
        attention_size(&self->of, query->dims[1].b, 1, query->dims[2].b, self->latent);
    }
    return status;
}

// Lays the workspace out; returns its bytes.
static uint64_t lay_out(const decode *self, char *memory, copies *out) {
    const uint64_t of_attention = attention_bytes(&self->of);
    if (memory) {
        out->memory = memory;
        out->starts = (int32_t *)(void *)(memory + of_attention);
        out->lengths = out->starts + self->sequences + 1;
        out->blocks = out->lengths + self->sequences;
    }
    return of_attention + (uint64_t)(2 * self->sequences + 1 + self->blocks) * sizeof(int32_t);
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return lay_out(state, NULL, NULL);
}

// A table of i64 as one of i32; views `to`.
static berth_tensor copy_table(const berth_tensor *table, int64_t rows, int64_t strides[2],
                               int32_t *to) {
    const int64_t width = table->shape[1];
    berth_tensor out = *table;
    for (int64_t i = 0; i < rows * width; ++i) {
        to[i] = (int32_t)berth_integer_at(berth_row(table, i / width), table->dtype, i % width);
    }
    strides[0] = width;
    strides[1] = 1;
    out.data = to;
    out.byte_offset = 0;
    out.dtype = BERTH_DTYPE_I32;
    out.strides = strides;
    return out;
}

// Row i is the token of sequence i. One without keys is zero.
static void attend_rows(const decode *self, const berth_op_args *args, const berth_tensor *table,
                        const copies *with) {
    const berth_tensor *query = args->inputs[QUERY];
    shared_rows rows;
    share_rows(args->states[0], self->latent, &rows);
    job in = {
        .self = &self->of,
        .query = query,
        .out = args->outputs[0],
        .cache = {&rows.keys, &rows.values   },
        .tables = table,
        .starts = with->starts,
        .lengths = with->lengths,
        .sequences = query->shape[0],
        .tokens = {0,          query->shape[0]},
        .memory = with->memory,
    };
    attend(&in);
    for (int64_t row = 0; row < query->shape[0] * query->shape[1]; ++row) {
        if (with->lengths[row / query->shape[1]] == 0) {
            memset(berth_row(in.out, row), 0,
                   (size_t)self->latent * BERTH_DTYPE_BITS(in.out->dtype) / 8);
        }
    }
}

// Fills `out` with the sequences of the rows.
static berth_status read_lengths(const decode *self, const berth_op_args *args,
                                 const berth_tensor *table, const berth_tensor *lengths,
                                 const copies *out) {
    const berth_tensor *cache = args->states[0];
    const int64_t rows = args->inputs[QUERY]->shape[0];
    const int64_t most = table->shape[1] * cache->shape[1];
    if (rows > lengths->shape[0]) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "mla_decode: %lld queries for %lld sequences", (long long)rows,
                                 (long long)lengths->shape[0]);
    }
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t length = berth_integer_at(berth_data(lengths), lengths->dtype, i);
        if (length > most) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "mla_decode: sequence %lld of %lld tokens has %lld blocks",
                                     (long long)i, (long long)length, (long long)table->shape[1]);
        }
        out->starts[i] = (int32_t)i;
        out->lengths[i] = (int32_t)greatest(length, 0);
    }
    out->starts[rows] = (int32_t)rows;
    return BERTH_STATE_CHECK(self->host, "mla_decode", cache, cache->shape[1], self->of.width);
}

static berth_status forward(void *state, const berth_op_args *args) {
    const decode *self = state;
    const berth_batch_view *view = args->batch ? args->batch->host : NULL;
    const berth_tensor *given = args->inputs[BLOCK_TABLE];
    if (!given && !view) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "mla_decode: needs a batch or 'block_table'");
    }
    const berth_tensor *table = given ? given : view->block_tables[self->cache_group];
    const berth_tensor *lengths = given ? args->inputs[SEQ_LENS] : view->seq_lens;
    int64_t strides[2];
    copies with = {NULL};
    (void)lay_out(self, berth_data(args->workspace), &with);
    assert(with.starts && with.lengths && with.blocks); // there is always a workspace
    const berth_status status = read_lengths(self, args, table, lengths, &with);
    if (status == BERTH_OK) {
        const int is_copied = table->dtype != BERTH_DTYPE_I32;
        const berth_tensor copy =
            is_copied ? copy_table(table, args->inputs[QUERY]->shape[0], strides, with.blocks)
                      : *table;
        attend_rows(self, args, &copy, &with);
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
