// SPDX-License-Identifier: Apache-2.0
// selective_state_update: steps, skips and gates are computed for a vector of channels, each
// channel's states as vectors of their own. A part has a span of channels, so rows that share a
// slot follow one another.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <cpu/recurrence_lanes.h>
#include <sequences.h>

enum { X, DT, A, B, C, D, Z, DT_BIAS, STATE_BATCH_INDICES };

typedef struct update {
    const berth_host *host;
    const berth_cpu *cpu;
    int is_softplus;
} update;

typedef struct job {
    const update *self;
    const berth_op_args *args;
    int64_t heads;  // 1 without heads
    int64_t groups; // 1 without heads
    int64_t dim;    // channels of one head
    int64_t states;
} job;

// Channels of one head from `first` on, at most BERTH_LANES of them.
typedef struct lanes {
    int64_t head;
    int64_t first;
    int64_t count;
    berth_vec skip; // D
    berth_vec bias;
} lanes;

// One channel of one row.
typedef struct channel {
    const void *decay; // row of A
    const void *b;
    const void *c;
    void *h;
    float delta;
    float given; // delta · x
} channel;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(update), out_self);
    if (status == BERTH_OK) {
        update *self = *out_self;
        self->cpu = device->self;
        self->is_softplus = berth_site_attribute(site, "dt_softplus")->i64 != 0;
    }
    return status;
}

// The states of a channel take the step; what C reads of them.
BERTH_INLINE float step(const job *in, const channel *at, berth_dtype dtype) {
    const berth_dtype decays = in->args->inputs[A]->dtype;
    const berth_dtype kept = in->args->states[0]->dtype;
    const int64_t n = in->states;
    berth_vec sum = berth_vec_of(0);
    for (int64_t j = 0; j < n; j += BERTH_LANES) {
        const berth_vec fade =
            berth_vec_exp(berth_vec_of(at->delta) * berth_vec_load_some(at->decay, decays, j, n));
        berth_vec next =
            berth_vec_fma(berth_vec_of(at->given), berth_vec_load_some(at->b, dtype, j, n),
                          fade * berth_vec_load_some(at->h, kept, j, n));
        if (n - j < BERTH_LANES) { // an infinite step makes NaN of the zeros behind the states
            next = berth_vec_cut(next, n - j);
        }
        berth_vec_store_some(at->h, kept, j, n, next);
        sum = berth_vec_fma(next, berth_vec_load_some(at->c, dtype, j, n), sum);
    }
    return berth_vec_sum(sum);
}

// The channels of a row whose state is in that slot.
BERTH_INLINE berth_vec run_row(const job *in, const lanes *at, int64_t row, int64_t slot,
                               berth_dtype dtype) {
    const berth_tensor *const *inputs = in->args->inputs;
    const int64_t place = row * in->heads + at->head;
    const int64_t selector = row * in->groups + at->head / (in->heads / in->groups);
    const berth_vec x = berth_vec_load_some(berth_row(inputs[X], place), dtype, at->first, in->dim);
    berth_vec delta =
        berth_vec_load_some(berth_row(inputs[DT], place), dtype, at->first, in->dim) + at->bias;
    delta = in->self->is_softplus ? berth_vec_softplus(delta) : delta;
    const berth_vec given = delta * x;
    float y[BERTH_LANES] = {0};
    for (int64_t lane = 0; lane < at->count; ++lane) {
        const int64_t index = at->head * in->dim + at->first + lane;
        const channel one = {
            .decay = berth_row(inputs[A], index),
            .b = berth_row(inputs[B], selector),
            .c = berth_row(inputs[C], selector),
            .h = berth_row(in->args->states[0], slot * in->heads * in->dim + index),
            .delta = delta[lane],
            .given = given[lane],
        };
        y[lane] = step(in, &one, dtype);
    }
    berth_vec sum = berth_vec_fma(at->skip, x, berth_vec_load(y));
    if (inputs[Z]) {
        sum = sum * berth_vec_silu(berth_vec_load_some(berth_row(inputs[Z], place), dtype,
                                                       at->first, in->dim));
    }
    return sum;
}

BERTH_INLINE void walk(const job *in, const lanes *at, berth_dtype dtype) {
    for (int64_t row = 0; row < in->args->inputs[X]->shape[0]; ++row) {
        const int64_t slot = berth_slot_at(in->args->inputs[STATE_BATCH_INDICES], row);
        const berth_vec y = slot < 0 ? berth_vec_of(0) : run_row(in, at, row, slot, dtype);
        berth_vec_store_some(berth_row(in->args->outputs[0], row * in->heads + at->head), dtype,
                             at->first, in->dim, y);
    }
}

static berth_vec per_channel(const job *in, const lanes *at, uint64_t input) {
    const berth_tensor *x = in->args->inputs[input];
    return x ? berth_vec_load_some(berth_row(x, at->head), x->dtype, at->first, in->dim)
             : berth_vec_of(0);
}

static void update_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    const int64_t blocks = (in->dim + BERTH_LANES - 1) / BERTH_LANES; // of a head
    const berth_span span = berth_share(in->heads * blocks, part, parts);
    for (int64_t block = span.first; block < span.end; ++block) {
        lanes at = {.head = block / blocks, .first = block % blocks * BERTH_LANES};
        at.count = in->dim - at.first < BERTH_LANES ? in->dim - at.first : BERTH_LANES;
        at.skip = per_channel(in, &at, D);
        at.bias = per_channel(in, &at, DT_BIAS);
        if (dtype == BERTH_DTYPE_F32) {
            walk(in, &at, BERTH_DTYPE_F32);
        } else if (dtype == BERTH_DTYPE_BF16) {
            walk(in, &at, BERTH_DTYPE_BF16);
        } else {
            walk(in, &at, BERTH_DTYPE_F16);
        }
    }
}

static berth_status check(const job *in) {
    const char *op = "selective_state_update";
    const berth_host *host = in->self->host;
    const berth_tensor *state = in->args->states[0];
    const berth_tensor *x = in->args->inputs[X];
    const berth_status status =
        x->ndim == 3 ? BERTH_STATE_CHECK(host, op, state, in->heads, in->dim, in->states)
                     : BERTH_STATE_CHECK(host, op, state, in->dim, in->states);
    return status != BERTH_OK ? status
                              : berth_slots_check(host, op, in->args->inputs[STATE_BATCH_INDICES],
                                                  x->shape[0], state->shape[0]);
}

static berth_status forward(void *state, const berth_op_args *args) {
    const update *self = state;
    const berth_tensor *x = args->inputs[X];
    const int has_heads = x->ndim == 3;
    const job in = {
        .self = self,
        .args = args,
        .heads = has_heads ? x->shape[1] : 1,
        .groups = has_heads ? args->inputs[B]->shape[1] : 1,
        .dim = berth_row_length(x),
        .states = berth_row_length(args->inputs[A]),
    };
    const berth_status status = check(&in);
    if (status == BERTH_OK) { // an e^x is worth many copies
        berth_run(self->cpu, update_part, &in, 4 * x->shape[0] * in.heads * in.dim * in.states);
    }
    return status;
}

const berth_op_impl berth_kernel_selective_state_update = {
    .size = sizeof(berth_op_impl),
    .op = "selective_state_update",
    .name = "cpu.selective_state_update",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
