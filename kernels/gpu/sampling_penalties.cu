// SPDX-License-Identifier: Apache-2.0
// sampling_penalties on a GPU: a block a row (sampling.h), which counts the row's tokens first.
#include "sampling.h"

namespace {

enum {
    LOGITS,
    PROMPT_TOKEN_IDS,
    OUTPUT_TOKEN_IDS,
    PRESENCE_PENALTIES,
    FREQUENCY_PENALTIES,
    REPETITION_PENALTIES,
};

struct penalties : gpu_op {
    berth_dim rows; // of the logits
    int64_t vocabulary;
};

// Rows of ids, dense.
struct ids {
    const void *data;
    berth_dtype dtype;
    int64_t length;
};

struct operands {
    gpu_sampling_rows rows;
    ids prompt;
    ids output;
    const float *presence;
    const float *frequency;
    const float *repetition;
    int32_t *counts; // [rows, 2, vocabulary]: of the prompt, of what was put out
};

__device__ void count_ids(const ids &all, int64_t vocabulary, int32_t *counts) {
    for (int64_t i = threadIdx.x; i < all.length; i += GPU_SAMPLING_THREADS) {
        const int64_t id = gpu_integer(all.data, all.dtype, blockIdx.x * all.length + i);
        if (id >= 0 && id < vocabulary) {
            atomicAdd(counts + id, 1);
        }
    }
}

__global__ void penalties_kernel(operands all) {
    const int64_t vocabulary = all.rows.count;
    int32_t *in_prompt = all.counts + blockIdx.x * 2 * vocabulary;
    int32_t *in_output = in_prompt + vocabulary;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const float *from = gpu_sampling_from(all.rows);
    float *to = gpu_sampling_to(all.rows);
    for (int64_t i = threadIdx.x; i < 2 * vocabulary; i += GPU_SAMPLING_THREADS) {
        in_prompt[i] = 0;
    }
    __syncthreads();
    count_ids(all.prompt, vocabulary, in_prompt);
    count_ids(all.output, vocabulary, in_output);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < vocabulary; i += GPU_SAMPLING_THREADS) {
        const float factor = in_prompt[i] + in_output[i] > 0 ? all.repetition[blockIdx.x] : 1;
        const float often = static_cast<float>(in_output[i]);
        float value = from[i] > 0 ? gpu_div_rn(from[i], factor) : gpu_mul_rn(from[i], factor);
        value = gpu_add_rn(value, -gpu_mul_rn(all.frequency[blockIdx.x], often));
        to[i] = gpu_add_rn(value, -(often > 0 ? all.presence[blockIdx.x] : 0.0f));
    }
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<penalties>(site, device, out_self);
    if (status == BERTH_OK) {
        penalties *self = static_cast<penalties *>(*out_self);
        self->rows = site->inputs[LOGITS]->dims[0];
        self->vocabulary = site->inputs[LOGITS]->dims[1].b;
    }
    return status;
}

uint64_t workspace(void *self, uint64_t tokens) {
    const penalties *op = static_cast<const penalties *>(self);
    return gpu_extent(op->rows, tokens) * static_cast<uint64_t>(op->vocabulary) * 2 *
           sizeof(int32_t);
}

ids ids_of(const berth_tensor *tensor) {
    return ids{berth_gpu_data(tensor), tensor->dtype, tensor->shape[1]};
}

berth_status forward(void *self, const berth_op_args *args) {
    const penalties *op = static_cast<const penalties *>(self);
    if (args->inputs[LOGITS]->shape[0] == 0) {
        return BERTH_OK;
    }
    const operands all = {gpu_sampling_rows_of(args),
                          ids_of(args->inputs[PROMPT_TOKEN_IDS]),
                          ids_of(args->inputs[OUTPUT_TOKEN_IDS]),
                          gpu_sampling_option(args, PRESENCE_PENALTIES),
                          gpu_sampling_option(args, FREQUENCY_PENALTIES),
                          gpu_sampling_option(args, REPETITION_PENALTIES),
                          static_cast<int32_t *>(berth_gpu_data(args->workspace))};
    return gpu_sampling_run(op, args, penalties_kernel, all);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_sampling_penalties;
const berth_op_impl berth_kernel_sampling_penalties = {
    BERTH_GPU_KERNEL("sampling_penalties"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
