// SPDX-License-Identifier: Apache-2.0
// selective_scan over rows of channels: a vector of channels walks down each sequence with its
// states beside each other, so that no sum runs across lanes. A part has a span of channels.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <cpu/recurrence_lanes.h>
#include <sequences.h>

enum { U, DELTA, A, B, C, D, Z, DELTA_BIAS, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE };

#define MAX_STATES 64 // of a channel: two tiles of these stay in the first cache

typedef struct scan {
    const berth_host *host;
    const berth_cpu *cpu;
    uint64_t cache_group;
    int is_softplus;
} scan;

typedef struct job {
    const scan *self;
    const berth_op_args *args;
    const berth_sequences *sequences;
    int64_t dim;
    int64_t states;
} job;

// The channels [first, first + BERTH_LANES), those behind dim being zero.
typedef struct lanes {
    int64_t first;
    berth_vec skip; // D
    berth_vec bias;
    berth_vec decay[MAX_STATES];
    berth_vec h[MAX_STATES];
} lanes;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_value_type *selector = site->inputs[B];
    if (!berth_site_attribute(site, "channels_last")->i64) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "channels before tokens");
    }
    if (site->inputs[A]->dims[1].b > MAX_STATES) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "more than %d states a channel",
                                 MAX_STATES);
    }
    return selector->ndim == 2 || selector->dims[1].b == 1
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "more than one group");
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(scan), out_self);
    if (status == BERTH_OK) {
        scan *self = *out_self;
        self->cpu = device->self;
        self->cache_group = site->cache_group;
        self->is_softplus = berth_site_attribute(site, "delta_softplus")->i64 != 0;
    }
    return status;
}

// The rows of these channels, counted from `row`.
static berth_span rows_of(const job *in, const lanes *at, int64_t row) {
    const int64_t end = at->first + BERTH_LANES < in->dim ? at->first + BERTH_LANES : in->dim;
    return (berth_span){.first = row + at->first, .end = row + end};
}

static berth_vec per_channel(const job *in, const lanes *at, uint64_t input) {
    const berth_tensor *x = in->args->inputs[input];
    return x ? berth_vec_load_some(berth_data(x), x->dtype, at->first, in->dim) : berth_vec_of(0);
}

BERTH_INLINE void walk(const job *in, lanes *at, const berth_sequence *sequence,
                       berth_dtype dtype) {
    const berth_tensor *const *x = in->args->inputs;
    for (int64_t row = sequence->first; row < sequence->end; ++row) {
        const berth_vec u = berth_vec_load_some(berth_row(x[U], row), dtype, at->first, in->dim);
        const void *b = berth_row(x[B], row);
        const void *c = berth_row(x[C], row);
        berth_vec delta =
            berth_vec_load_some(berth_row(x[DELTA], row), dtype, at->first, in->dim) + at->bias;
        delta = in->self->is_softplus ? berth_vec_softplus(delta) : delta;
        const berth_vec given = delta * u;
        berth_vec y = at->skip * u;
        for (int64_t j = 0; j < in->states; ++j) {
            const berth_vec kept = berth_vec_exp(delta * at->decay[j]) * at->h[j];
            at->h[j] = berth_vec_fma(given, berth_vec_of(berth_load_at(b, dtype, j)), kept);
            y = berth_vec_fma(at->h[j], berth_vec_of(berth_load_at(c, dtype, j)), y);
        }
        if (x[Z]) {
            y = y * berth_vec_silu(
                        berth_vec_load_some(berth_row(x[Z], row), dtype, at->first, in->dim));
        }
        berth_vec_store_some(berth_row(in->args->outputs[0], row), dtype, at->first, in->dim, y);
    }
}

static void run_sequence(const job *in, lanes *at, const berth_sequence *sequence) {
    const berth_tensor *state = in->args->states[0];
    const berth_tensor *y = in->args->outputs[0];
    const berth_span rows = rows_of(in, at, sequence->slot * in->dim);
    for (int64_t token = sequence->first; sequence->slot < 0 && token < sequence->end; ++token) {
        berth_vec_store_some(berth_row(y, token), y->dtype, at->first, in->dim, berth_vec_of(0));
    }
    if (sequence->slot < 0 || sequence->end == sequence->first) {
        return;
    }
    for (int64_t j = 0; j < in->states; ++j) {
        at->h[j] = berth_vec_of(0);
    }
    if (sequence->has_state) {
        berth_load_columns(state, rows, in->states, at->h);
    }
    if (y->dtype == BERTH_DTYPE_F32) {
        walk(in, at, sequence, BERTH_DTYPE_F32);
    } else if (y->dtype == BERTH_DTYPE_BF16) {
        walk(in, at, sequence, BERTH_DTYPE_BF16);
    } else {
        walk(in, at, sequence, BERTH_DTYPE_F16);
    }
    berth_store_columns(state, rows, in->states, at->h);
}

static void scan_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const int64_t blocks = (in->dim + BERTH_LANES - 1) / BERTH_LANES;
    const berth_span span = berth_share(blocks, part, parts);
    lanes at;
    for (int64_t block = span.first; block < span.end; ++block) {
        at.first = block * BERTH_LANES;
        at.skip = per_channel(in, &at, D);
        at.bias = per_channel(in, &at, DELTA_BIAS);
        berth_load_columns(in->args->inputs[A], rows_of(in, &at, 0), in->states, at.decay);
        for (int64_t i = 0; i < in->sequences->count; ++i) {
            const berth_sequence sequence = berth_sequence_at(in->sequences, i);
            run_sequence(in, &at, &sequence);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const scan *self = state;
    berth_sequences sequences = {
        .host = self->host,
        .op = "selective_scan",
        .cache_group = self->cache_group,
        .starts = args->inputs[QUERY_START_LOC],
        .slots = args->inputs[CACHE_INDICES],
        .has_state = args->inputs[HAS_INITIAL_STATE],
    };
    const job in = {
        .self = self,
        .args = args,
        .sequences = &sequences,
        .dim = args->inputs[A]->shape[0],
        .states = args->inputs[A]->shape[1],
    };
    berth_status status =
        BERTH_STATE_CHECK(self->host, sequences.op, args->states[0], in.dim, in.states);
    if (status == BERTH_OK) {
        status = berth_sequences_open(&sequences, args->batch, args->inputs[U]->shape[0],
                                      args->states[0]->shape[0]);
    }
    if (status == BERTH_OK) { // an e^x is worth many copies
        berth_run(self->cpu, scan_part, &in, 4 * args->inputs[U]->shape[0] * in.dim * in.states);
    }
    return status;
}

const berth_op_impl berth_kernel_selective_scan = {
    .size = sizeof(berth_op_impl),
    .op = "selective_scan",
    .name = "cpu.selective_scan",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
