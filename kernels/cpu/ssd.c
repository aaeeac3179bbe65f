// SPDX-License-Identifier: Apache-2.0
// ssd: a row of a head's state walks down each sequence, in the first cache and as floats; what the
// rows of a head share, decay and step of every token, is computed once before. A part has a span
// of heads.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <matrices.h>
#include <recurrence.h>

enum { X, DT, A, B, C, D, DT_BIAS, INITIAL_STATES, CU_SEQLENS };

#define MAX_WIDTH 512 // states of a row

typedef struct ssd {
    const berth_host *host;
    const berth_cpu *cpu;
    uint64_t cache_group;
    int is_softplus;
    berth_step_range steps;
    uint64_t rows; // of x where they are constant, else 0
} ssd;

typedef struct job {
    const ssd *self;
    const berth_op_args *args;
    const berth_sequences *sequences;
    int64_t heads;
    int64_t groups;
    int64_t size;  // rows of a head's state
    int64_t width; // states of a row
} job;

// One head; decay and step of the tokens of one sequence, counted from its first.
typedef struct head {
    int64_t index;
    int64_t group;
    float skip; // D
    float *kept;
    float *step;
} head;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_value_type *b = site->inputs[B];
    return b->dims[b->ndim - 1].b <= MAX_WIDTH
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "more than %d states a row",
                                   MAX_WIDTH);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(ssd), out_self);
    if (status == BERTH_OK) {
        ssd *self = *out_self;
        self->cpu = device->self;
        self->cache_group = site->cache_group;
        self->rows = site->inputs[X]->dims[0].symbol == BERTH_SYMBOL_NONE
                         ? (uint64_t)site->inputs[X]->dims[0].b
                         : 0;
        self->is_softplus = berth_site_attribute(site, "dt_softplus")->i64 != 0;
        self->steps = berth_step_range_of(site);
    }
    return status;
}

// Two floats per token for every part.
static uint64_t workspace(void *state, uint64_t tokens) {
    const ssd *self = state;
    const uint64_t rows = tokens > self->rows ? tokens : self->rows;
    return (uint64_t)self->cpu->threads * rows * 2 * sizeof(float);
}

static float per_head(const job *in, uint64_t input, int64_t index) {
    const berth_tensor *x = in->args->inputs[input];
    return x ? berth_load_at(berth_data(x), x->dtype, index) : 0;
}

static void prepare(const job *in, head *at, const berth_sequence *sequence) {
    const berth_tensor *dt = in->args->inputs[DT];
    const float decay = per_head(in, A, at->index);
    const float bias = per_head(in, DT_BIAS, at->index);
    for (int64_t token = sequence->first; token < sequence->end; ++token) {
        float step = berth_load_at(berth_row(dt, token), dt->dtype, at->index) + bias;
        step =
            berth_step_within(in->self->steps, in->self->is_softplus ? berth_softplus(step) : step);
        at->step[token - sequence->first] = step;
        at->kept[token - sequence->first] = expf(step * decay);
    }
}

// Row `i` of a head's state.
typedef struct state_row {
    int64_t i;
    float *m;
} state_row;

// A row of the head's state down all tokens of the sequence.
BERTH_INLINE void walk(const job *in, const head *at, const berth_sequence *sequence,
                       state_row state, berth_dtype dtype) {
    const int64_t i = state.i;
    float *m = state.m;
    const berth_tensor *const *inputs = in->args->inputs;
    for (int64_t token = sequence->first; token < sequence->end; ++token) {
        const int64_t row = token * in->heads + at->index;
        const int64_t selector = token * in->groups + at->group;
        const void *b = berth_row(inputs[B], selector);
        const void *c = berth_row(inputs[C], selector);
        const float x = berth_load_at(berth_row(inputs[X], row), dtype, i);
        const berth_vec kept = berth_vec_of(at->kept[token - sequence->first]);
        const berth_vec given = berth_vec_of(at->step[token - sequence->first] * x);
        berth_vec sum = berth_vec_of(0);
        for (int64_t j = 0; j < in->width; j += BERTH_LANES) {
            berth_vec next = berth_vec_fma(given, berth_vec_load_some(b, dtype, j, in->width),
                                           kept * berth_vec_load(m + j));
            if (in->width - j < BERTH_LANES) { // an infinite step makes NaN of the zeros there
                next = berth_vec_cut(next, in->width - j);
            }
            sum = berth_vec_fma(next, berth_vec_load_some(c, dtype, j, in->width), sum);
            berth_vec_store(m + j, next);
        }
        berth_store_at(berth_row(in->args->outputs[0], row), dtype, i,
                       berth_vec_sum(sum) + at->skip * x);
    }
}

static void walk_as(const job *in, const head *at, const berth_sequence *sequence, int64_t i,
                    float *m) {
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    if (dtype == BERTH_DTYPE_F32) {
        walk(in, at, sequence, (state_row){i, m}, BERTH_DTYPE_F32);
    } else if (dtype == BERTH_DTYPE_BF16) {
        walk(in, at, sequence, (state_row){i, m}, BERTH_DTYPE_BF16);
    } else {
        walk(in, at, sequence, (state_row){i, m}, BERTH_DTYPE_F16);
    }
}

static void run_sequence(const job *in, head *at, const berth_sequence *sequence, int64_t number) {
    const berth_op_args *args = in->args;
    const berth_matrices its = berth_matrices_of(args, args->inputs[CU_SEQLENS],
                                                 args->inputs[INITIAL_STATES], sequence, number);
    const int64_t first = (its.slot * in->heads + at->index) * in->size;
    float m[MAX_WIDTH + BERTH_LANES];
    prepare(in, at, sequence);
    for (int64_t i = 0; i < in->size; ++i) {
        memset(m, 0, (size_t)(in->width + BERTH_LANES) * sizeof *m);
        if (its.from) {
            berth_load(berth_row(its.from, first + i), its.from->dtype, 0, in->width, m);
        }
        walk_as(in, at, sequence, i, m);
        berth_store(berth_row(its.to, first + i), its.to->dtype, 0, in->width, m);
    }
}

static void scan_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const int64_t tokens = in->args->inputs[X]->shape[0];
    const berth_span span = berth_share(in->heads, part, parts);
    head at = {.kept = (float *)berth_data(in->args->workspace) + part * tokens * 2};
    at.step = at.kept + tokens;
    for (at.index = span.first; at.index < span.end; ++at.index) {
        at.group = at.index / (in->heads / in->groups);
        at.skip = per_head(in, D, at.index);
        for (int64_t i = 0; i < in->sequences->count; ++i) {
            const berth_sequence sequence = berth_sequence_at(in->sequences, i);
            if (berth_matrices_has(in->args->inputs[CU_SEQLENS], &sequence)) {
                run_sequence(in, &at, &sequence, i);
            }
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const ssd *self = state;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *b = args->inputs[B];
    berth_sequences sequences = {
        .host = self->host,
        .op = "ssd",
        .cache_group = self->cache_group,
        .starts = args->inputs[CU_SEQLENS],
    };
    const job in = {
        .self = self,
        .args = args,
        .sequences = &sequences,
        .heads = x->shape[1],
        .groups = b->ndim == 3 ? b->shape[1] : 1,
        .size = x->shape[2],
        .width = berth_row_length(b),
    };
    const berth_status status =
        BERTH_MATRICES_OPEN(&sequences, args, x->shape[0], in.heads, in.size, in.width);
    if (status == BERTH_OK) {
        berth_run(self->cpu, scan_part, &in, 2 * x->shape[0] * in.heads * in.size * in.width);
    }
    return status;
}

const berth_op_impl berth_kernel_ssd = {
    .size = sizeof(berth_op_impl),
    .op = "ssd",
    .name = "cpu.ssd",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 2,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
