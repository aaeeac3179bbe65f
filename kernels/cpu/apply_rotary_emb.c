// SPDX-License-Identifier: Apache-2.0
// apply_rotary_emb: pairs turned by given cosines and sines, with one rounding.
#include <cpu/rope_turn.h>

enum { X, COS, SIN };

typedef struct rotation {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t pairs;
    int64_t is_neox;
} rotation;

typedef struct job {
    const rotation *self;
    const berth_op_args *args;
} job;

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const rotation *self = state;
    return (uint64_t)(self->cpu->threads * 2 * self->pairs) * sizeof(float);
}

static void find_circle(const job *in, int64_t place, float *circle) {
    const berth_tensor *cosines = in->args->inputs[COS];
    const berth_tensor *sines = in->args->inputs[SIN];
    const int64_t pairs = in->self->pairs;
    berth_load(berth_row(cosines, place), cosines->dtype, 0, pairs, circle);
    berth_load(berth_row(sines, place), sines->dtype, 0, pairs, circle + pairs);
    if (in->self->is_neox) {
        rope_order(circle, pairs, in->args->inputs[X]->dtype);
    }
}

// Tokens of all sequences.
static void turn_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const int64_t heads = x->shape[x->ndim - 2];
    const int64_t length = x->shape[x->ndim - 3];
    const berth_rows from = berth_rows_of(x);
    const berth_rows to = berth_rows_of(in->args->outputs[0]);
    float *circle = (float *)berth_data(in->args->workspace) + part * 2 * in->self->pairs;
    rope_heads all = {
        .first = {.circle = circle, .half = in->self->pairs, .ahead = {.bytes = BERTH_SWEEP_AHEAD}},
        .from_step = from.step,
        .to_step = to.step,
        .count = heads,
        .is_neox = in->self->is_neox,
        .is_past = berth_is_past(berth_row_count(x) * berth_row_length(x), x->dtype),
    };
    const berth_span tokens = berth_share(heads > 0 ? berth_row_count(x) / heads : 0, part, parts);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        find_circle(in, token % length, circle);
        all.first.x = berth_rows_at(&from, token * heads);
        all.first.y = berth_rows_at(&to, token * heads);
        rope_turn(&all, x->dtype);
    }
    berth_past_end();
}

static berth_status forward(void *self, const berth_op_args *args) {
    const job in = {.self = self, .args = args};
    const berth_tensor *x = args->inputs[X];
    berth_run(in.self->cpu, turn_part, &in, berth_row_count(x) * berth_row_length(x));
    return BERTH_OK;
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(rotation), out_self);
    if (status == BERTH_OK) {
        rotation *self = *out_self;
        self->cpu = device->self;
        self->pairs = site->inputs[X]->dims[site->inputs[X]->ndim - 1].b / 2;
        self->is_neox = berth_site_attribute(site, "is_neox_style")->i64;
    }
    return status;
}

const berth_op_impl berth_kernel_apply_rotary_emb = {
    .size = sizeof(berth_op_impl),
    .op = "apply_rotary_emb",
    .name = "cpu.apply_rotary_emb",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
