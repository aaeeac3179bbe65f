// SPDX-License-Identifier: Apache-2.0
// mla: always the absorbed form. Every query is brought into the space of the latent rows, attends
// to them as they lie in the cache, which all heads share (attention_run.h), and what comes out is
// brought to the space of the values.
//
// Why also for prompts, where making keys and values first would need fewer products: so a token's
// result is the same to the last bit however its prompt was cut and whoever is beside it, and no
// memory grows with the context. What the forms of the reference round to the query's dtype stays
// float32 here, which is nearer to both.
#include <cpu/mla_project.h>

#include <sequences.h>

#define ROWS_AT_ONCE 8192 // queries of all heads: their rows should stay in the caches

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(mla), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *query = site->inputs[QUERY];
        mla *self = *out_self;
        self->of.cpu = device->self;
        self->of.scale = (float)berth_site_attribute(site, "scale")->f64;
        self->cache_group = site->cache_group;
        self->heads = query->dims[1].b;
        self->rope = site->inputs[K_PE]->dims[1].b;
        self->latent = site->inputs[C_KV]->dims[1].b;
        self->values = berth_site_attribute(site, "v_head_dim")->i64;
        self->nope = query->dims[2].b - (site->inputs[QUERY_PE] ? 0 : self->rope);
        attention_size(&self->of, self->heads, 1, self->latent + self->rope, self->latent);
        self->row = greatest(self->of.width, self->of.stride);
        self->at_once = least(dim_most(site, site->inputs[QUERY]->dims[0]),
                              greatest(ROWS_AT_ONCE / self->heads, 1));
        self->rows = dim_most(site, site->inputs[C_KV]->dims[0]);
    }
    return status;
}

// Lays the workspace out; returns its bytes.
static uint64_t lay_out(const mla *self, char *memory, mla_job *out) {
    const uint64_t tokens = (uint64_t)(self->at_once * self->heads);
    const uint64_t queries = tokens * (uint64_t)self->row;
    const uint64_t sums = tokens * (uint64_t)self->of.stride;
    const uint64_t memory_bytes = attention_bytes(&self->of);
    if (memory) {
        out->memory = memory;
        out->queries = (float *)(void *)(memory + memory_bytes);
        out->sums = out->queries + queries;
    }
    return memory_bytes + (queries + sums) * sizeof(float);
}

// What a call without a cache keeps of its rows stands behind all else.
static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const mla *self = state;
    return lay_out(self, NULL, NULL) + (uint64_t)(self->rows * self->of.width) * sizeof(float);
}

// ---- latent rows --------------------------------------------------------------------------------

// Every row of the call, latent columns before rotated ones, to where it is kept.
typedef struct keeping {
    const berth_op_args *args;
    const berth_tensor *to;
    const int64_t *slots; // NULL: row i is row i
} keeping;

static void keep_part(const void *work, int64_t part, int64_t parts) {
    const keeping *in = work;
    const berth_tensor *latent = in->args->inputs[C_KV];
    const berth_tensor *rotated = in->args->inputs[K_PE];
    const berth_dtype dtype = in->to->dtype;
    const berth_span rows = berth_share(latent->shape[0], part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const int64_t slot = in->slots ? in->slots[row] : row;
        if (slot < 0) {
            continue;
        }
        char *to = berth_row(in->to, slot);
        berth_vec_copy(to, dtype, berth_row(latent, row), latent->dtype, latent->shape[1]);
        berth_vec_copy(to + latent->shape[1] * (int64_t)(BERTH_DTYPE_BITS(dtype) / 8), dtype,
                       berth_row(rotated, row), rotated->dtype, rotated->shape[1]);
    }
}

static void keep_rows(const mla *self, const keeping *in) {
    berth_run(self->of.cpu, keep_part, in, in->args->inputs[C_KV]->shape[0] * self->of.width);
}

// ---- tokens -------------------------------------------------------------------------------------

// The tokens at hand of what `of` is about.
static void attend_tokens(const mla_job *at, const job *of) {
    const mla *self = at->self;
    const int64_t tokens = at->tokens.end - at->tokens.first;
    const int64_t shape[] = {tokens, self->heads, self->of.width};
    const int64_t strides[] = {self->heads * self->row, self->row, 1};
    const int64_t out_shape[] = {tokens, self->heads, self->latent};
    const int64_t out_strides[] = {self->heads * self->of.stride, self->of.stride, 1};
    const berth_tensor query = {
        .size = sizeof(berth_tensor),
        .data = at->queries,
        .ndim = 3,
        .dtype = BERTH_DTYPE_F32,
        .shape = shape,
        .strides = strides,
    };
    berth_tensor out = query;
    out.data = at->sums;
    out.shape = out_shape;
    out.strides = out_strides;
    job in = *of;
    in.query = &query;
    in.out = &out;
    in.tokens = at->tokens;
    in.memory = at->memory;
    const int64_t products = tokens * self->heads * self->latent;
    berth_run(self->of.cpu, mla_absorb_part, at, products * self->nope);
    attend(&in);
    berth_run(self->of.cpu, mla_expand_part, at, products * self->values);
}

// All tokens of sequences whose keys are rows of `kept` [blocks, block_size, l + p].
static void attend_all(const mla *self, const berth_op_args *args, const berth_tensor *kept,
                       job in) {
    shared_rows rows;
    share_rows(kept, self->latent, &rows);
    in.self = &self->of;
    in.cache[KEYS_OF] = &rows.keys;
    in.cache[VALUES_OF] = &rows.values;
    mla_job at = {.self = self, .args = args};
    (void)lay_out(self, berth_data(args->workspace), &at);
    const int64_t end = in.starts[in.sequences];
    for (int64_t first = in.starts[0]; first < end; first = at.tokens.end) {
        at.tokens = (berth_span){first, least(first + self->at_once, end)};
        attend_tokens(&at, &in);
    }
}

// ---- with a cache, and without ------------------------------------------------------------------

static berth_status attend_cached(const mla *self, const berth_op_args *args) {
    const berth_batch_view *view = args->batch->host;
    const berth_tensor *cache = args->states[0];
    const berth_status status =
        BERTH_STATE_CHECK(self->host, "mla", cache, cache->shape[1], self->of.width);
    if (status != BERTH_OK) {
        return status;
    }
    const keeping rows = {args, cache, berth_data(view->slot_mappings[self->cache_group])};
    keep_rows(self, &rows);
    const job in = {
        .tables = view->block_tables[self->cache_group],
        .starts = berth_data(view->query_start_loc),
        .lengths = berth_data(view->seq_lens),
        .sequences = view->query_start_loc->shape[0] - 1,
    };
    attend_all(self, args, cache, in);
    return BERTH_OK;
}

// One sequence after another, of a copy of all rows.
static berth_status attend_given(const mla *self, const berth_op_args *args) {
    const berth_tensor *given = args->inputs[C_KV];
    const berth_tensor *lengths = args->inputs[SEQ_LENS];
    const berth_batch_view *view = args->batch ? args->batch->host : NULL;
    berth_sequences sequences = {
        .host = self->host,
        .op = "mla",
        .starts = args->inputs[QUERY_START_LOC],
    };
    const berth_status status =
        berth_sequences_open(&sequences, args->batch, args->inputs[QUERY]->shape[0], INT64_MAX);
    if (status != BERTH_OK) {
        return status;
    }
    lengths = lengths ? lengths : view->seq_lens;
    const berth_tensor table = only_table();
    const int64_t shape[] = {1, given->shape[0], self->of.width};
    const int64_t strides[] = {0, self->of.width, 1};
    berth_tensor kept = *args->workspace;
    kept.byte_offset += lay_out(self, NULL, NULL);
    kept.dtype = given->dtype;
    kept.ndim = 3;
    kept.shape = shape;
    kept.strides = strides;
    keep_rows(self, &(keeping){.args = args, .to = &kept});
    int64_t left = given->shape[0];
    for (int64_t i = 0; i < sequences.count; ++i) {
        const berth_sequence at = berth_sequence_at(&sequences, i);
        const int64_t length = berth_sequences_at(lengths, i);
        if (length < at.end - at.first || length > left) {
            return BERTH_PLUGIN_FAIL(
                self->host, BERTH_INVALID_ARGUMENT,
                "mla: a sequence of %lld tokens, %lld of them new, does not fit", (long long)length,
                (long long)(at.end - at.first));
        }
        const int32_t starts[] = {(int32_t)at.first, (int32_t)at.end};
        const int32_t keys = (int32_t)length;
        const job in = {.tables = &table, .starts = starts, .lengths = &keys, .sequences = 1};
        attend_all(self, args, &kept, in);
        kept.byte_offset += (uint64_t)(length * self->of.width) * BERTH_DTYPE_BITS(kept.dtype) / 8;
        left -= length;
    }
    return BERTH_OK;
}

static berth_status forward(void *state, const berth_op_args *args) {
    const mla *self = state;
    const berth_batch_view *view = args->batch ? args->batch->host : NULL;
    const int is_given = args->inputs[SEQ_LENS] != NULL;
    if (args->states[0] && (!view || is_given)) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "mla: a cache goes with the sequences of a batch, not with "
                                 "'query_start_loc'");
    }
    if (!view && !is_given) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "mla: needs a batch or the lengths of its sequences");
    }
    return args->states[0] ? attend_cached(self, args) : attend_given(self, args);
}

const berth_op_impl berth_kernel_mla = {
    .size = sizeof(berth_op_impl),
    .op = "mla",
    .name = "cpu.mla",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
