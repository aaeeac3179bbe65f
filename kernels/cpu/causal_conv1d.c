// SPDX-License-Identifier: Apache-2.0
// causal_conv1d over rows of channels: a vector of channels walks down each sequence, the rows
// before it in registers. A part has a span of channels, so nobody waits for anybody.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <cpu/recurrence_lanes.h>
#include <sequences.h>

enum { X, WEIGHT, BIAS, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE };

#define MAX_WIDTH 8 // taps

typedef struct convolution {
    const berth_host *host;
    const berth_cpu *cpu;
    uint64_t cache_group;
    int is_silu;
} convolution;

typedef struct job {
    const convolution *self;
    const berth_op_args *args;
    const berth_sequences *sequences;
    int64_t width; // taps
    int64_t dim;
} job;

// The channels [first, first + BERTH_LANES): their taps, and the rows before the next one.
typedef struct lanes {
    int64_t first;
    berth_vec bias;
    berth_vec taps[MAX_WIDTH];
    berth_vec past[MAX_WIDTH];
} lanes;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_dim width = site->inputs[WEIGHT]->dims[site->inputs[WEIGHT]->ndim - 1];
    if (!berth_site_attribute(site, "channels_last")->i64) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "channels before tokens");
    }
    return width.b <= MAX_WIDTH
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "more than %d taps", MAX_WIDTH);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(convolution), out_self);
    if (status == BERTH_OK) {
        convolution *self = *out_self;
        self->cpu = device->self;
        self->cache_group = site->cache_group;
        self->is_silu = berth_site_attribute(site, "activation")->str[0] != 0;
    }
    return status;
}

static void load_taps(const job *in, lanes *at) {
    const berth_tensor *weight = in->args->inputs[WEIGHT];
    const berth_tensor *bias = in->args->inputs[BIAS];
    float taps[MAX_WIDTH][BERTH_LANES] = {{0}};
    for (int64_t lane = 0; lane < BERTH_LANES && at->first + lane < in->dim; ++lane) {
        const void *row = berth_row(weight, at->first + lane);
        for (int64_t k = 0; k < in->width; ++k) {
            taps[k][lane] = berth_load_at(row, weight->dtype, k);
        }
    }
    for (int64_t k = 0; k < in->width; ++k) {
        at->taps[k] = berth_vec_load(taps[k]);
    }
    at->bias = bias ? berth_vec_load_some(berth_data(bias), bias->dtype, at->first, in->dim)
                    : berth_vec_of(0);
}

BERTH_INLINE void walk(const job *in, lanes *at, const berth_sequence *sequence,
                       berth_dtype dtype) {
    const int64_t kept = in->width - 1;
    for (int64_t row = sequence->first; row < sequence->end; ++row) {
        const berth_vec x =
            berth_vec_load_some(berth_row(in->args->inputs[X], row), dtype, at->first, in->dim);
        berth_vec sum = at->bias;
        for (int64_t k = 0; k < kept; ++k) {
            sum = berth_vec_fma(at->taps[k], at->past[k], sum);
            at->past[k] = k + 1 < kept ? at->past[k + 1] : x;
        }
        sum = berth_vec_round_to(dtype, berth_vec_fma(at->taps[kept], x, sum));
        berth_vec_store_some(berth_row(in->args->outputs[0], row), dtype, at->first, in->dim,
                             in->self->is_silu ? berth_vec_silu(sum) : sum);
    }
}

static void pass_over(const job *in, const lanes *at, const berth_sequence *sequence) {
    const berth_tensor *y = in->args->outputs[0];
    for (int64_t row = sequence->first; row < sequence->end; ++row) {
        berth_vec_store_some(berth_row(y, row), y->dtype, at->first, in->dim, berth_vec_of(0));
    }
}

static void run_sequence(const job *in, lanes *at, const berth_sequence *sequence) {
    const berth_tensor *state = in->args->states[0];
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    const int64_t kept = in->width - 1;
    if (sequence->slot < 0 || sequence->end == sequence->first) {
        pass_over(in, at, sequence);
        return;
    }
    for (int64_t k = 0; k < kept; ++k) {
        const void *row = berth_row(state, sequence->slot * kept + k);
        at->past[k] = sequence->has_state
                          ? berth_vec_load_some(row, state->dtype, at->first, in->dim)
                          : berth_vec_of(0);
    }
    if (dtype == BERTH_DTYPE_F32) {
        walk(in, at, sequence, BERTH_DTYPE_F32);
    } else if (dtype == BERTH_DTYPE_BF16) {
        walk(in, at, sequence, BERTH_DTYPE_BF16);
    } else {
        walk(in, at, sequence, BERTH_DTYPE_F16);
    }
    for (int64_t k = 0; k < kept; ++k) {
        berth_vec_store_some(berth_row(state, sequence->slot * kept + k), state->dtype, at->first,
                             in->dim, at->past[k]);
    }
}

static void convolve_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const int64_t blocks = (in->dim + BERTH_LANES - 1) / BERTH_LANES;
    const berth_span span = berth_share(blocks, part, parts);
    for (int64_t block = span.first; block < span.end; ++block) {
        lanes at = {.first = block * BERTH_LANES};
        load_taps(in, &at);
        for (int64_t i = 0; i < in->sequences->count; ++i) {
            const berth_sequence sequence = berth_sequence_at(in->sequences, i);
            run_sequence(in, &at, &sequence);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const convolution *self = state;
    const berth_tensor *x = args->inputs[X];
    berth_sequences sequences = {
        .host = self->host,
        .op = "causal_conv1d",
        .cache_group = self->cache_group,
        .starts = args->inputs[QUERY_START_LOC],
        .slots = args->inputs[CACHE_INDICES],
        .has_state = args->inputs[HAS_INITIAL_STATE],
    };
    const job in = {
        .self = self,
        .args = args,
        .sequences = &sequences,
        .width = berth_row_length(args->inputs[WEIGHT]),
        .dim = x->shape[1],
    };
    berth_status status =
        BERTH_STATE_CHECK(self->host, sequences.op, args->states[0], in.width - 1, in.dim);
    if (status == BERTH_OK) {
        status =
            berth_sequences_open(&sequences, args->batch, x->shape[0], args->states[0]->shape[0]);
    }
    if (status == BERTH_OK) {
        berth_run(self->cpu, convolve_part, &in, 4 * x->shape[0] * in.dim);
    }
    return status;
}

const berth_op_impl berth_kernel_causal_conv1d = {
    .size = sizeof(berth_op_impl),
    .op = "causal_conv1d",
    .name = "cpu.causal_conv1d",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
