// SPDX-License-Identifier: Apache-2.0
// Ops on logits [sequences, vocabulary] on a GPU: a block of threads a row, in f32.
#ifndef BERTH_KERNELS_GPU_SAMPLING_H
#define BERTH_KERNELS_GPU_SAMPLING_H

#include "quant_rows.h"

#define GPU_SAMPLING_THREADS 1024

struct gpu_sampling_rows {
    const float *logits; // dense
    float *y;
    int64_t count; // of a row
};

static __device__ inline const float *gpu_sampling_from(const gpu_sampling_rows &all) {
    return all.logits + blockIdx.x * all.count;
}
static __device__ inline float *gpu_sampling_to(const gpu_sampling_rows &all) {
    return all.y + blockIdx.x * all.count;
}

// `room` has a float a warp, free again after it.
static __device__ inline float gpu_sampling_largest(const float *logits, int64_t count,
                                                    float *room) {
    float largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < count; i += GPU_SAMPLING_THREADS) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    largest = gpu_block_max(largest, room);
    __syncthreads();
    return largest;
}

// The sum of e^(logit − largest).
static __device__ inline float gpu_sampling_sum(const float *logits, int64_t count, float largest,
                                                float *room) {
    float sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += GPU_SAMPLING_THREADS) {
        sum += expf(logits[i] - largest);
    }
    sum = gpu_block_sum(sum, room);
    __syncthreads();
    return sum;
}

// ---- the host's side ----------------------------------------------------------------------------

static inline gpu_sampling_rows gpu_sampling_rows_of(const berth_op_args *args) {
    const berth_tensor *logits = args->inputs[0];
    return gpu_sampling_rows{static_cast<const float *>(berth_gpu_data(logits)),
                             static_cast<float *>(berth_gpu_data(args->outputs[0])),
                             logits->shape[1]};
}

static inline const float *gpu_sampling_option(const berth_op_args *args, int input) {
    const berth_tensor *option = args->inputs[input];
    return option ? static_cast<const float *>(berth_gpu_data(option)) : nullptr;
}

// A block for each row of the logits.
template <typename K, typename... A>
static inline berth_status gpu_sampling_run(const gpu_op *op, const berth_op_args *args, K *kernel,
                                            A... arguments) {
    const int64_t rows = args->inputs[0]->shape[0];
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows)), dim3(GPU_SAMPLING_THREADS), 0};
    return rows == 0 ? BERTH_OK : gpu_run(op, "an op on logits", grid, kernel, arguments...);
}

#endif
