// SPDX-License-Identifier: Apache-2.0
// lightning_attention: some vectors of a head's values walk down its tokens, with their columns of
// the memory in the first cache and as floats, so that no sum runs across lanes. A part has a span
// of such columns.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <sequences.h>

enum { Q, K, V, ED };

#define MAX_KEYS 256 // d
#define COLUMNS  4   // vectors
#define WIDTH    (COLUMNS * BERTH_LANES)

typedef struct job {
    const berth_op_args *args;
    int64_t keys;   // d
    int64_t values; // e
} job;

// Values [first, first + WIDTH) of a head of a batch row, both counted in `row`.
typedef struct columns {
    int64_t row;
    int64_t first;
    berth_vec fade;
    berth_vec memory[MAX_KEYS][COLUMNS];
} columns;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return site->inputs[Q]->dims[3].b <= MAX_KEYS
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "heads of more than %d",
                                   MAX_KEYS);
}

BERTH_INLINE void run_token(const job *in, columns *at, int64_t token, berth_dtype dtype) {
    const void *query = berth_row(in->args->inputs[Q], token);
    const void *key = berth_row(in->args->inputs[K], token);
    const void *value = berth_row(in->args->inputs[V], token);
    berth_vec v[COLUMNS];
    berth_vec sums[COLUMNS];
    BERTH_UNROLL
    for (int64_t j = 0; j < COLUMNS; ++j) {
        v[j] = berth_vec_load_some(value, dtype, at->first + j * BERTH_LANES, in->values);
        sums[j] = berth_vec_of(0);
    }
    for (int64_t i = 0; i < in->keys; ++i) {
        const berth_vec k = berth_vec_of(berth_load_at(key, dtype, i));
        const berth_vec q = berth_vec_of(berth_load_at(query, dtype, i));
        BERTH_UNROLL
        for (int64_t j = 0; j < COLUMNS; ++j) {
            const berth_vec next = berth_vec_fma(at->fade, at->memory[i][j], k * v[j]);
            sums[j] = berth_vec_fma(q, next, sums[j]);
            at->memory[i][j] = next;
        }
    }
    BERTH_UNROLL
    for (int64_t j = 0; j < COLUMNS; ++j) {
        berth_vec_store_some(berth_row(in->args->outputs[0], token), dtype,
                             at->first + j * BERTH_LANES, in->values, sums[j]);
    }
}

BERTH_INLINE void walk(const job *in, columns *at, berth_dtype dtype) {
    const int64_t tokens = in->args->inputs[Q]->shape[2];
    for (int64_t token = at->row * tokens; token < (at->row + 1) * tokens; ++token) {
        run_token(in, at, token, dtype);
    }
}

static void load_memory(const job *in, columns *at) {
    const berth_tensor *state = in->args->states[0];
    for (int64_t i = 0; i < in->keys; ++i) {
        const void *from = berth_row(state, at->row * in->keys + i);
        for (int64_t j = 0; j < COLUMNS; ++j) {
            at->memory[i][j] =
                berth_vec_load_some(from, state->dtype, at->first + j * BERTH_LANES, in->values);
        }
    }
}

static void store_memory(const job *in, const columns *at) {
    const berth_tensor *state = in->args->states[0];
    for (int64_t i = 0; i < in->keys; ++i) {
        void *to = berth_row(state, at->row * in->keys + i);
        for (int64_t j = 0; j < COLUMNS; ++j) {
            berth_vec_store_some(to, state->dtype, at->first + j * BERTH_LANES, in->values,
                                 at->memory[i][j]);
        }
    }
}

static void run_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *q = in->args->inputs[Q];
    const berth_tensor *ed = in->args->inputs[ED];
    const int64_t blocks = (in->values + WIDTH - 1) / WIDTH; // of a head
    const berth_span span = berth_share(q->shape[0] * q->shape[1] * blocks, part, parts);
    columns at;
    for (int64_t block = span.first; block < span.end; ++block) {
        at.row = block / blocks;
        at.first = block % blocks * WIDTH;
        at.fade =
            berth_vec_of(expf(-berth_load_at(berth_data(ed), ed->dtype, at.row % q->shape[1])));
        load_memory(in, &at);
        if (q->dtype == BERTH_DTYPE_F32) {
            walk(in, &at, BERTH_DTYPE_F32);
        } else if (q->dtype == BERTH_DTYPE_BF16) {
            walk(in, &at, BERTH_DTYPE_BF16);
        } else {
            walk(in, &at, BERTH_DTYPE_F16);
        }
        store_memory(in, &at);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const berth_instance *self = state;
    const berth_tensor *q = args->inputs[Q];
    const berth_tensor *memory = args->states[0];
    const job in = {
        .args = args,
        .keys = berth_row_length(q),
        .values = berth_row_length(args->inputs[V]),
    };
    const berth_status status = BERTH_STATE_CHECK(self->host, "lightning_attention", memory,
                                                  q->shape[1], in.keys, in.values);
    if (status != BERTH_OK) {
        return status;
    }
    if (memory->shape[0] < q->shape[0]) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "lightning_attention: a batch of %lld with %lld memories",
                                 (long long)q->shape[0], (long long)memory->shape[0]);
    }
    const int64_t tokens = q->shape[0] * q->shape[2];
    berth_run(self->cpu, run_part, &in, 2 * tokens * q->shape[1] * in.keys * in.values);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_lightning_attention = {
    .size = sizeof(berth_op_impl),
    .op = "lightning_attention",
    .name = "cpu.lightning_attention",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
