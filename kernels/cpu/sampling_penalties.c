// SPDX-License-Identifier: Apache-2.0
// sampling_penalties: the ids of a row are counted, then its logits are swept in vectors.
#include <cpu/cpu.h>
#include <cpu/elementwise.h>
#include <cpu/simd.h>

enum {
    LOGITS,
    PROMPT_TOKEN_IDS,
    OUTPUT_TOKEN_IDS,
    PRESENCE_PENALTIES,
    FREQUENCY_PENALTIES,
    REPETITION_PENALTIES,
};

typedef struct penalties {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t width; // of a row of counts, in whole vectors
} penalties;

typedef struct job {
    const penalties *self;
    const berth_op_args *args;
} job;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(penalties), out_self);
    if (status == BERTH_OK) {
        penalties *self = *out_self;
        self->cpu = device->self;
        self->width =
            (site->inputs[LOGITS]->dims[1].b + BERTH_LANES - 1) / BERTH_LANES * BERTH_LANES;
    }
    return status;
}

// Of every part: counts of the prompt and of what was put out, as floats.
static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const penalties *self = state;
    return (uint64_t)(2 * self->cpu->threads * self->width) * sizeof(float);
}

static void count_ids(const berth_tensor *ids, int64_t row, float *counts, int64_t vocabulary) {
    const void *from = berth_row(ids, row);
    for (int64_t i = 0; i < ids->shape[1]; ++i) {
        const int64_t id = berth_integer_at(from, ids->dtype, i);
        if (id >= 0 && id < vocabulary) {
            ++counts[id];
        }
    }
}

static float option_at(const berth_op_args *args, uint64_t option, int64_t row) {
    return ((const float *)berth_data(args->inputs[option]))[row];
}

static void penalise_row(const job *in, int64_t row, const float *in_prompt,
                         const float *in_output) {
    const float *from = berth_row(in->args->inputs[LOGITS], row);
    float *to = berth_row(in->args->outputs[0], row);
    const int64_t count = in->args->inputs[LOGITS]->shape[1];
    const berth_vec zero = berth_vec_of(0);
    const berth_vec one = berth_vec_of(1);
    const berth_vec repetition = berth_vec_of(option_at(in->args, REPETITION_PENALTIES, row));
    const berth_vec frequency = berth_vec_of(option_at(in->args, FREQUENCY_PENALTIES, row));
    const berth_vec presence = berth_vec_of(option_at(in->args, PRESENCE_PENALTIES, row));
    for (int64_t i = 0; i < count; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(from, BERTH_DTYPE_F32, i, count);
        const berth_vec output = berth_vec_load(in_output + i);
        const berth_vec all = output + berth_vec_load(in_prompt + i);
        const berth_vec factor = berth_vec_pick((berth_vec_ints)(all > zero), repetition, one);
        berth_vec y = berth_vec_pick((berth_vec_ints)(x > zero), x / factor, x * factor);
        y = y - frequency * output;
        y = y - presence * berth_vec_pick((berth_vec_ints)(output > zero), one, zero);
        berth_vec_store_some(to, BERTH_DTYPE_F32, i, count, y);
    }
}

static void penalise_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *logits = in->args->inputs[LOGITS];
    const int64_t width = in->self->width;
    float *in_prompt = (float *)berth_data(in->args->workspace) + 2 * part * width;
    float *in_output = in_prompt + width;
    const berth_span rows = berth_share(logits->shape[0], part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        memset(in_prompt, 0, (size_t)(2 * width) * sizeof *in_prompt);
        count_ids(in->args->inputs[PROMPT_TOKEN_IDS], row, in_prompt, logits->shape[1]);
        count_ids(in->args->inputs[OUTPUT_TOKEN_IDS], row, in_output, logits->shape[1]);
        penalise_row(in, row, in_prompt, in_output);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const job in = {.self = state, .args = args};
    const berth_tensor *logits = args->inputs[LOGITS];
    berth_run(in.self->cpu, penalise_part, &in, logits->shape[0] * logits->shape[1]);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_sampling_penalties = {
    .size = sizeof(berth_op_impl),
    .op = "sampling_penalties",
    .name = "cpu.sampling_penalties",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
