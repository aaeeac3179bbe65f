// SPDX-License-Identifier: Apache-2.0
// moe_prepare: the choices are counted and given their rows by one thread, which is little work;
// the rows of x are copied by all.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <moe.h>

enum { X, TOPK_WEIGHTS, TOPK_IDS, EXPERT_MAP };
enum { EXPERT_X, EXPERT_FIRST, SLOTS };

typedef struct prepare {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t experts;
    int is_weighted;
} prepare;

typedef struct job {
    const prepare *self;
    const berth_op_args *args;
    int64_t used; // rows
} job;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(prepare), out_self);
    if (status == BERTH_OK) {
        prepare *self = *out_self;
        self->cpu = device->self;
        self->experts = berth_site_attribute(site, "num_local_experts")->i64;
        self->is_weighted = berth_site_attribute(site, "apply_router_weight_on_input")->i64 != 0;
    }
    return status;
}

static int64_t expert_at(const job *in, int64_t choice) {
    const berth_tensor *ids = in->args->inputs[TOPK_IDS];
    return berth_moe_expert(ids, in->args->inputs[EXPERT_MAP], choice / ids->shape[1],
                            choice % ids->shape[1], in->self->experts);
}

// Fills expert_first: counts one further on, then sums.
static berth_status count(const job *in, int32_t *first) {
    const berth_tensor *ids = in->args->inputs[TOPK_IDS];
    const int64_t experts = in->self->experts;
    memset(first, 0, (size_t)(experts + 1) * sizeof *first);
    for (int64_t i = 0; i < ids->shape[0] * ids->shape[1]; ++i) {
        const int64_t expert = expert_at(in, i);
        if (expert == -2) {
            return berth_moe_no_expert(in->self->host, "moe_prepare", i / ids->shape[1]);
        }
        first[expert + 1] += expert >= 0;
    }
    for (int64_t expert = 0; expert < experts; ++expert) {
        first[expert + 1] += first[expert];
    }
    return BERTH_OK;
}

// The row of every choice. expert_first serves as the next free row of each expert and is moved
// back at the end.
static void place(const job *in, int32_t *first) {
    const berth_tensor *ids = in->args->inputs[TOPK_IDS];
    int32_t *slots = berth_data(in->args->outputs[SLOTS]);
    for (int64_t i = 0; i < ids->shape[0] * ids->shape[1]; ++i) {
        const int64_t expert = expert_at(in, i);
        slots[i] = expert >= 0 ? first[expert]++ : -1;
    }
    memmove(first + 1, first, (size_t)in->self->experts * sizeof *first);
    first[0] = 0;
}

static void weigh_row(const void *x, berth_dtype dtype, int64_t width, float weight, void *to) {
    const berth_vec factor = berth_vec_of(berth_round_to(dtype, weight));
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        berth_vec_store_some(to, dtype, i, width, berth_vec_load_some(x, dtype, i, width) * factor);
    }
}

// A part's choices, and its share of the rows that nobody chose.
static void copy_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *rows = in->args->outputs[EXPERT_X];
    const int32_t *slots = berth_data(in->args->outputs[SLOTS]);
    const int64_t k = in->args->inputs[TOPK_IDS]->shape[1];
    const int64_t width = x->shape[1];
    const size_t bytes = (size_t)width * BERTH_DTYPE_BITS(x->dtype) / 8;
    const berth_span choices = berth_share(x->shape[0] * k, part, parts);
    for (int64_t i = choices.first; i < choices.end; ++i) {
        if (slots[i] >= 0 && in->self->is_weighted) {
            const float *weights = berth_row(in->args->inputs[TOPK_WEIGHTS], i / k);
            weigh_row(berth_row(x, i / k), x->dtype, width, weights[i % k],
                      berth_row(rows, slots[i]));
        } else if (slots[i] >= 0) {
            memcpy(berth_row(rows, slots[i]), berth_row(x, i / k), bytes);
        }
    }
    const berth_span unused = berth_share(rows->shape[0] - in->used, part, parts);
    for (int64_t i = unused.first; i < unused.end; ++i) {
        memset(berth_row(rows, in->used + i), 0, bytes);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    job in = {.self = state, .args = args};
    const berth_tensor *rows = args->outputs[EXPERT_X];
    int32_t *first = berth_data(args->outputs[EXPERT_FIRST]);
    const berth_status status = count(&in, first);
    if (status == BERTH_OK) {
        in.used = first[in.self->experts];
        place(&in, first);
        berth_run(in.self->cpu, copy_part, &in, rows->shape[0] * rows->shape[1]);
    }
    return status;
}

const berth_op_impl berth_kernel_moe_prepare = {
    .size = sizeof(berth_op_impl),
    .op = "moe_prepare",
    .name = "cpu.moe_prepare",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
