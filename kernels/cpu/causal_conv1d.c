// SPDX-License-Identifier: Apache-2.0
// causal_conv1d over rows of channels: a vector of channels walks down each sequence, the rows
// before it in registers. A part has a span of channels, so nobody waits for anybody.
#include <cpu/causal_lanes.h>
#include <sequences.h>

enum { X, WEIGHT, BIAS, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE };

typedef struct job {
    const berth_causal *self;
    const berth_op_args *args;
    const berth_sequences *sequences;
    int64_t dim;
} job;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    return berth_site_attribute(site, "channels_last")->i64
               ? berth_causal_supports(site, device)
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "channels before tokens");
}

BERTH_INLINE void walk(const job *in, berth_causal_lanes *at, const berth_sequence *sequence,
                       berth_dtype dtype) {
    for (int64_t row = sequence->first; row < sequence->end; ++row) {
        const berth_vec x =
            berth_vec_load_some(berth_row(in->args->inputs[X], row), dtype, at->first, in->dim);
        const berth_vec y = berth_vec_round_to(dtype, berth_causal_step(at, x));
        berth_vec_store_some(berth_row(in->args->outputs[0], row), dtype, at->first, in->dim,
                             in->self->is_silu ? berth_vec_silu(y) : y);
    }
}

static void pass_over(const job *in, const berth_causal_lanes *at, const berth_sequence *sequence) {
    const berth_tensor *y = in->args->outputs[0];
    for (int64_t row = sequence->first; row < sequence->end; ++row) {
        berth_vec_store_some(berth_row(y, row), y->dtype, at->first, in->dim, berth_vec_of(0));
    }
}

static void run_sequence(const job *in, berth_causal_lanes *at, const berth_sequence *sequence) {
    const berth_tensor *state = in->args->states[0];
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    const int64_t kept = at->kept;
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
        berth_causal_lanes at = berth_causal_lanes_of(in->args, block, in->dim);
        for (int64_t i = 0; i < in->sequences->count; ++i) {
            const berth_sequence sequence = berth_sequence_at(in->sequences, i);
            run_sequence(in, &at, &sequence);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const berth_causal *self = state;
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
        .dim = x->shape[1],
    };
    berth_status status = BERTH_STATE_CHECK(self->host, sequences.op, args->states[0],
                                            berth_row_length(args->inputs[WEIGHT]) - 1, in.dim);
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
    .create = berth_causal_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
