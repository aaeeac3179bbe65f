// SPDX-License-Identifier: Apache-2.0
// What the kernels of prefill share: which queries and keys a block has, where a key lies, and the
// end of a softmax.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_PREFILL_H
#define BERTH_KERNELS_CUDA_ATTENTION_PREFILL_H

#include <cuda/attention/attention.h>
#include <cuda/mma.h>

#define LOG2E 1.4426950408889634f

// What a block is about.
struct cuda_task {
    int first_token; // of the sequence in the batch
    int tokens;      // new ones
    int first_query; // of the block, among the new ones
    int offset;      // position of the sequence's first new token
    int first_key;   // that the first query of the block sees
    int begin_key;   // the same, down to a multiple of keys
    int end_key;     // keys that the last query of the block sees
    int sequence;
};

// False: the block has nothing to do.
static __device__ inline bool cuda_find_task(const gpu_attention_call &call, int rows, int keys,
                                             cuda_task *out) {
    const int sequence = blockIdx.z;
    const int start = call.starts[sequence];
    const int tokens = call.starts[sequence + 1] - start;
    // The last queries see the most keys, so they come first.
    const int first_query = (static_cast<int>(gridDim.y) - 1 - static_cast<int>(blockIdx.y)) * rows;
    if (tokens < 2 || first_query >= tokens) {
        return false;
    }
    const int offset = call.lengths[sequence] - tokens;
    const int last = first_query + rows < tokens ? first_query + rows : tokens;
    const int seen = call.window > 0 ? offset + first_query - call.window + 1 : 0;
    const int first_key = seen > 0 ? seen : 0;
    *out =
        cuda_task{start,         tokens,  first_query, offset, first_key, first_key / keys * keys,
                  offset + last, sequence};
    return true;
}

// The slot of a key in the caches.
static __device__ inline int64_t cuda_slot(const gpu_attention_call &call, const int32_t *blocks,
                                           int key) {
    return (static_cast<int64_t>(blocks[key >> call.block_shift]) << call.block_shift) +
           (key & (call.block_size - 1));
}

// The largest of a row over the four lanes that have it.
static __device__ inline float cuda_row_max(float value) {
    value = fmaxf(value, gpu_shuffle_xor(value, 1));
    return fmaxf(value, gpu_shuffle_xor(value, 2));
}

// `largest` in powers of two.
static __device__ inline float cuda_total(const gpu_attention_call &call, float largest,
                                          float total, float *factor) {
    total += gpu_shuffle_xor(total, 1);
    total += gpu_shuffle_xor(total, 2);
    *factor = 1;
    if (call.sinks) {
        const float sink = gpu_load_any(call.sinks, call.sink_dtype, blockIdx.x) * LOG2E;
        const float most = fmaxf(largest, sink);
        *factor = cuda_exp2(largest - most);
        total = total * *factor + cuda_exp2(sink - most);
    }
    return total;
}

#endif
