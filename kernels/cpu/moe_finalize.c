// SPDX-License-Identifier: Apache-2.0
// moe_finalize: some columns of a token at a time, of all its rows, so that the sum stays in
// registers.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <moe.h>

enum { EXPERT_Y, TOPK_WEIGHTS, SLOTS };

typedef struct finalize {
    const berth_host *host;
    const berth_cpu *cpu;
    int is_weighted_first;
} finalize;

typedef struct job {
    const finalize *self;
    const berth_op_args *args;
} job;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(finalize), out_self);
    if (status == BERTH_OK) {
        finalize *self = *out_self;
        self->cpu = device->self;
        self->is_weighted_first = berth_moe_read(site).is_weighted_first;
    }
    return status;
}

BERTH_INLINE void sum_token(const job *in, int64_t token, berth_dtype dtype) {
    const berth_tensor *rows = in->args->inputs[EXPERT_Y];
    const berth_tensor *slots = in->args->inputs[SLOTS];
    const float *weights = berth_row(in->args->inputs[TOPK_WEIGHTS], token);
    const void *chosen = berth_row(slots, token);
    void *y = berth_row(in->args->outputs[0], token);
    const int64_t width = rows->shape[1];
    for (int64_t column = 0; column < width; column += BERTH_LANES) {
        berth_vec sum = berth_vec_of(0);
        for (int64_t i = 0; i < slots->shape[1]; ++i) {
            const int64_t slot = berth_integer_at(chosen, slots->dtype, i);
            if (slot >= 0) {
                const float weight = in->self->is_weighted_first ? 1 : weights[i];
                sum = sum + berth_vec_load_some(berth_row(rows, slot), dtype, column, width) *
                                berth_vec_of(weight);
            }
        }
        berth_vec_store_some(y, dtype, column, width, sum);
    }
}

static void sum_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_dtype dtype = in->args->inputs[EXPERT_Y]->dtype;
    const berth_span tokens = berth_share(in->args->inputs[SLOTS]->shape[0], part, parts);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        if (dtype == BERTH_DTYPE_F32) {
            sum_token(in, token, BERTH_DTYPE_F32);
        } else if (dtype == BERTH_DTYPE_BF16) {
            sum_token(in, token, BERTH_DTYPE_BF16);
        } else {
            sum_token(in, token, BERTH_DTYPE_F16);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const job in = {.self = state, .args = args};
    const berth_tensor *slots = args->inputs[SLOTS];
    const int64_t rows = args->inputs[EXPERT_Y]->shape[0];
    const int64_t choices = slots->shape[0] * slots->shape[1];
    for (int64_t i = 0; i < choices; ++i) {
        if (berth_moe_expert(slots, NULL, i / slots->shape[1], i % slots->shape[1], rows) == -2) {
            return BERTH_PLUGIN_FAIL(in.self->host, BERTH_INVALID_ARGUMENT,
                                     "moe_finalize: a slot of token %lld is none of the %lld",
                                     (long long)(i / slots->shape[1]), (long long)rows);
        }
    }
    berth_run(in.self->cpu, sum_part, &in, choices * args->outputs[0]->shape[1]);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_moe_finalize = {
    .size = sizeof(berth_op_impl),
    .op = "moe_finalize",
    .name = "cpu.moe_finalize",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
