// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update: a vector of channels takes the new row of every sequence, one after the
// other. A part has a span of channels, so rows that share a slot follow one another.
#include <cpu/causal_lanes.h>
#include <sequences.h>

enum { X, WEIGHT, BIAS, CONV_STATE_INDICES };

typedef struct job {
    const berth_causal *self;
    const berth_op_args *args;
    int64_t dim;
} job;

BERTH_INLINE void walk(const job *in, berth_causal_lanes *at, berth_dtype dtype) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *state = in->args->states[0];
    for (int64_t row = 0; row < x->shape[0]; ++row) {
        const int64_t slot = berth_slot_at(in->args->inputs[CONV_STATE_INDICES], row);
        berth_vec y = berth_vec_of(0);
        if (slot >= 0) {
            const berth_span rows = {slot * in->dim + at->first, slot * in->dim + at->end};
            berth_load_columns(state, rows, at->kept, at->past);
            y = berth_causal_step(
                at, berth_vec_load_some(berth_row(x, row), dtype, at->first, in->dim));
            y = berth_vec_round_to(dtype, y);
            berth_store_columns(state, rows, at->kept, at->past);
        }
        berth_vec_store_some(berth_row(in->args->outputs[0], row), dtype, at->first, in->dim,
                             in->self->is_silu ? berth_vec_silu(y) : y);
    }
}

static void convolve_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    const berth_span span = berth_share((in->dim + BERTH_LANES - 1) / BERTH_LANES, part, parts);
    for (int64_t block = span.first; block < span.end; ++block) {
        berth_causal_lanes at = berth_causal_lanes_of(in->args, block, in->dim);
        if (dtype == BERTH_DTYPE_F32) {
            walk(in, &at, BERTH_DTYPE_F32);
        } else if (dtype == BERTH_DTYPE_BF16) {
            walk(in, &at, BERTH_DTYPE_BF16);
        } else {
            walk(in, &at, BERTH_DTYPE_F16);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const berth_causal *self = state;
    const berth_tensor *x = args->inputs[X];
    const job in = {
        .self = self,
        .args = args,
        .dim = x->shape[1],
    };
    berth_status status = BERTH_STATE_CHECK(self->host, "causal_conv1d_update", args->states[0],
                                            in.dim, berth_row_length(args->inputs[WEIGHT]) - 1);
    if (status == BERTH_OK) {
        status =
            berth_slots_check(self->host, "causal_conv1d_update", args->inputs[CONV_STATE_INDICES],
                              x->shape[0], args->states[0]->shape[0]);
    }
    if (status == BERTH_OK) {
        berth_run(self->cpu, convolve_part, &in, 4 * x->shape[0] * in.dim);
    }
    return status;
}

const berth_op_impl berth_kernel_causal_conv1d_update = {
    .size = sizeof(berth_op_impl),
    .op = "causal_conv1d_update",
    .name = "cpu.causal_conv1d_update",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = berth_causal_supports,
    .create = berth_causal_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
