// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule: a row of a head's matrix walks down each sequence, in the first cache and as
// floats; what the rows of a head share of every token is computed once before. A part has a span
// of heads.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <matrices.h>
#include <recurrence.h>

#include <assert.h>

enum { QUERY, KEY, VALUE, GATE, BETA, A_LOG, DT_BIAS, INITIAL_STATE, CU_SEQLENS };

#define MAX_KEYS   512 // k
#define LENGTH_EPS 1e-6f

typedef struct rule {
    const berth_host *host;
    const berth_cpu *cpu;
    uint64_t cache_group;
    int is_normed;
    uint64_t tokens; // where they are constant, else 0
} rule;

typedef struct job {
    const rule *self;
    const berth_op_args *args;
    const berth_sequences *sequences;
    int64_t heads;
    int64_t key_heads;
    int64_t keys;   // k
    int64_t values; // v
    int64_t tokens;
} job;

// What all rows of a head's matrix need of a token.
typedef struct token_scales {
    float fade; // e^g
    float beta;
    float key;   // 1 over its length
    float query; // 1 over its length and √k
} token_scales;

typedef struct head {
    int64_t index;
    int64_t key_index;
    token_scales *scales; // of the tokens of one sequence, counted from its first
} head;

// Row `i` of a head's matrix.
typedef struct matrix_row {
    int64_t i;
    float *m; // [k], up to a whole vector
} matrix_row;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_value_type *key = site->inputs[KEY];
    return key->dims[key->ndim - 1].b <= MAX_KEYS
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "keys of more than %d", MAX_KEYS);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(rule), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *value = site->inputs[VALUE];
        const berth_dim tokens = value->dims[value->ndim - 3];
        rule *self = *out_self;
        self->cpu = device->self;
        self->cache_group = site->cache_group;
        self->is_normed = berth_site_attribute(site, "use_qk_l2norm_in_kernel")->i64 != 0;
        self->tokens = tokens.symbol == BERTH_SYMBOL_NONE ? (uint64_t)tokens.b : 0;
    }
    return status;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    const rule *self = state;
    const uint64_t most = tokens > self->tokens ? tokens : self->tokens;
    return (uint64_t)self->cpu->threads * most * sizeof(token_scales);
}

static float per_head(const job *in, uint64_t input, int64_t index) {
    const berth_tensor *x = in->args->inputs[input];
    return berth_load_at(berth_data(x), x->dtype, index);
}

static float per_token(const job *in, uint64_t input, int64_t token, int64_t index) {
    const berth_tensor *x = in->args->inputs[input];
    return berth_load_at(berth_row(x, token), x->dtype, index);
}

// 1 over the length of a row of query or key.
static float over_length(const job *in, uint64_t input, int64_t row) {
    const berth_tensor *x = in->args->inputs[input];
    const void *data = berth_row(x, row);
    return in->self->is_normed
               ? 1.0f / sqrtf(berth_dot(data, x->dtype, data, x->dtype, in->keys) + LENGTH_EPS)
               : 1.0f;
}

static void prepare(const job *in, const head *at, const berth_sequence *sequence) {
    const float rate = -expf(per_head(in, A_LOG, at->index));
    const float bias = per_head(in, DT_BIAS, at->index);
    const float scale = 1.0f / sqrtf((float)in->keys);
    for (int64_t token = sequence->first; token < sequence->end; ++token) {
        const int64_t row = token * in->key_heads + at->key_index;
        const float gate = per_token(in, GATE, token, at->index) + bias;
        at->scales[token - sequence->first] = (token_scales){
            .fade = expf(rate * berth_softplus(gate)),
            .beta = berth_sigmoid(per_token(in, BETA, token, at->index)),
            .key = over_length(in, KEY, row),
            .query = over_length(in, QUERY, row) * scale,
        };
    }
}

// A row of the head's matrix down all tokens of the sequence.
BERTH_INLINE void walk(const job *in, const head *at, const berth_sequence *sequence,
                       matrix_row row, berth_dtype dtype) {
    const berth_tensor *const *inputs = in->args->inputs;
    float *m = row.m;
    for (int64_t token = sequence->first; token < sequence->end; ++token) {
        const token_scales *scales = &at->scales[token - sequence->first];
        const void *key = berth_row(inputs[KEY], token * in->key_heads + at->key_index);
        const void *query = berth_row(inputs[QUERY], token * in->key_heads + at->key_index);
        const int64_t place = token * in->heads + at->index;
        const berth_vec fade = berth_vec_of(scales->fade);
        berth_vec said = berth_vec_of(0);
        berth_vec sum = berth_vec_of(0);
        for (int64_t j = 0; j < in->keys; j += BERTH_LANES) {
            const berth_vec kept = fade * berth_vec_load(m + j);
            said = berth_vec_fma(kept, berth_vec_load_some(key, dtype, j, in->keys), said);
            berth_vec_store(m + j, kept);
        }
        const float wanted = berth_load_at(berth_row(inputs[VALUE], place), dtype, row.i);
        const float missing = wanted - berth_vec_sum(said) * scales->key;
        const berth_vec given = berth_vec_of(scales->beta * missing * scales->key);
        for (int64_t j = 0; j < in->keys; j += BERTH_LANES) {
            berth_vec next = berth_vec_fma(given, berth_vec_load_some(key, dtype, j, in->keys),
                                           berth_vec_load(m + j));
            if (in->keys - j < BERTH_LANES) { // an infinite value makes NaN of the zeros there
                next = berth_vec_cut(next, in->keys - j);
            }
            sum = berth_vec_fma(next, berth_vec_load_some(query, dtype, j, in->keys), sum);
            berth_vec_store(m + j, next);
        }
        berth_store_at(berth_row(in->args->outputs[0], place), dtype, row.i,
                       berth_vec_sum(sum) * scales->query);
    }
}

static void walk_as(const job *in, const head *at, const berth_sequence *sequence, matrix_row row) {
    const berth_dtype dtype = in->args->inputs[VALUE]->dtype;
    if (dtype == BERTH_DTYPE_F32) {
        walk(in, at, sequence, row, BERTH_DTYPE_F32);
    } else if (dtype == BERTH_DTYPE_BF16) {
        walk(in, at, sequence, row, BERTH_DTYPE_BF16);
    } else {
        walk(in, at, sequence, row, BERTH_DTYPE_F16);
    }
}

static void run_sequence(const job *in, const head *at, const berth_sequence *sequence,
                         int64_t number) {
    const berth_op_args *args = in->args;
    const berth_matrices its = berth_matrices_of(args, args->inputs[CU_SEQLENS],
                                                 args->inputs[INITIAL_STATE], sequence, number);
    const int64_t first = (its.slot * in->heads + at->index) * in->values;
    float m[MAX_KEYS + BERTH_LANES];
    assert(its.to); // as forward has checked
    prepare(in, at, sequence);
    for (int64_t i = 0; i < in->values; ++i) {
        memset(m, 0, (size_t)(in->keys + BERTH_LANES) * sizeof *m);
        if (its.from) {
            berth_load(berth_row(its.from, first + i), its.from->dtype, 0, in->keys, m);
        }
        walk_as(in, at, sequence, (matrix_row){.i = i, .m = m});
        berth_store(berth_row(its.to, first + i), its.to->dtype, 0, in->keys, m);
    }
}

static void scan_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_span span = berth_share(in->heads, part, parts);
    token_scales *room = berth_data(in->args->workspace);
    head at = {.scales = room + part * in->tokens};
    for (at.index = span.first; at.index < span.end; ++at.index) {
        at.key_index = at.index / (in->heads / in->key_heads);
        for (int64_t i = 0; i < in->sequences->count; ++i) {
            const berth_sequence sequence = berth_sequence_at(in->sequences, i);
            if (berth_matrices_has(in->args->inputs[CU_SEQLENS], &sequence)) {
                run_sequence(in, &at, &sequence, i);
            }
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const rule *self = state;
    const berth_tensor *key = args->inputs[KEY];
    const berth_tensor *value = args->inputs[VALUE];
    berth_sequences sequences = {
        .host = self->host,
        .op = "gated_delta_rule",
        .cache_group = self->cache_group,
        .starts = args->inputs[CU_SEQLENS],
    };
    const job in = {
        .self = self,
        .args = args,
        .sequences = &sequences,
        .heads = value->shape[value->ndim - 2],
        .key_heads = key->shape[key->ndim - 2],
        .keys = berth_row_length(key),
        .values = berth_row_length(value),
        .tokens = value->shape[value->ndim - 3],
    };
    const berth_status status =
        BERTH_MATRICES_OPEN(&sequences, args, in.tokens, in.heads, in.values, in.keys);
    if (status == BERTH_OK) {
        berth_run(self->cpu, scan_part, &in, 2 * in.tokens * in.heads * in.values * in.keys);
    }
    return status;
}

const berth_op_impl berth_kernel_gated_delta_rule = {
    .size = sizeof(berth_op_impl),
    .op = "gated_delta_rule",
    .name = "cpu.gated_delta_rule",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
