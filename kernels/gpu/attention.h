// SPDX-License-Identifier: Apache-2.0
// paged_attention on a GPU: what its kernels share. gpu.paged_attention takes every site; a faster
// one hands back to it what it does not take.
#ifndef BERTH_KERNELS_GPU_ATTENTION_H
#define BERTH_KERNELS_GPU_ATTENTION_H

#include <gpu/launch.h>

struct gpu_attention : gpu_op {
    float scale;
    float soft_cap;  // 0: none
    int64_t window;  // 0: none
    int64_t chunk;   // 0: none
    uint64_t group;  // of caches
    int32_t *causal; // [causal_count] in device memory; NULL: every sequence is
    int causal_count;
};

// The operands of a call. Strides in elements unless they say bytes.
struct gpu_attention_call {
    gpu_rows query; // rows are (token, head)
    gpu_rows key;   // data NULL: the cache is read only
    gpu_rows value;
    gpu_rows out;
    void *key_cache; // [blocks, block_size, kv_heads, width], dense
    void *value_cache;
    berth_dtype cache_dtype;
    const float *key_scale; // of caches of f8_e4m3fn, else NULL
    const float *value_scale;
    const void *sinks; // NULL: none
    berth_dtype sink_dtype;
    const void *slopes; // of alibi, NULL: none
    berth_dtype slope_dtype;
    gpu_rows first_key; // of tokens before every sequence, rows are (token, head); data NULL: none
    gpu_rows first_value;
    const int32_t *causal;  // whether each sequence is, the last entry for all behind; NULL: all
    const int32_t *starts;  // query_start_loc
    const int32_t *lengths; // seq_lens
    const int32_t *block_table; // rows of table_stride
    const int64_t *slots;       // NULL: nothing is stored
    int64_t table_stride;
    int64_t blocks; // of the caches
    int tokens;
    int sequences;
    int first_tokens; // before every sequence
    int causal_count;
    int heads;
    int kv_heads;
    int width;
    int block_size;
    int block_shift; // its logarithm, where it is a power of two
    float scale;
    float soft_cap;
    int window;
    int chunk;
};

// Refuses what gpu.paged_attention alone knows: sequences that see later positions, tokens before
// the first.
berth_status gpu_attention_check(const berth_op_site *site);
void gpu_attention_read(const berth_op_site *site, gpu_attention *self);
// Fails without a batch.
berth_status gpu_attention_begin(const gpu_attention *self, const berth_op_args *args,
                                 gpu_attention_call *out);
// The new keys and values to their slots.
berth_status gpu_attention_store(const gpu_op *op, const gpu_attention_call &call,
                                 berth_dtype dtype);
// Any site; after the store.
berth_status gpu_attention_run(const gpu_op *op, const gpu_attention_call &call, berth_dtype dtype);

// What the numbers of a cache are multiplied by.
static __device__ inline float gpu_cache_scale(const float *scale) {
    return scale ? *scale : 1.0f;
}

static __device__ inline float gpu_soft_cap(float score, float cap) {
    return cap > 0 ? cap * tanhf(score / cap) : score;
}

#endif
