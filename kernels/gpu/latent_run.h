// SPDX-License-Identifier: Apache-2.0
// Attention to latent rows on a GPU, the host's side: what a call of latent.h is made of.
#ifndef BERTH_KERNELS_GPU_LATENT_RUN_H
#define BERTH_KERNELS_GPU_LATENT_RUN_H

#include "latent.h"

// Bytes between the two kernels, for any number of tokens.
static inline uint64_t gpu_latent_bytes(int64_t heads, int64_t latent) {
    return static_cast<uint64_t>(GPU_LATENT_ROWS * heads * (latent + 2)) * sizeof(float);
}

// Tokens of a call that go through the kernels at once, and the splits of their keys; the memory
// between them is laid out in `memory`.
static inline int gpu_latent_begin(gpu_latent_call *all, int64_t tokens, void *memory) {
    const int count = static_cast<int>(tokens < GPU_LATENT_ROWS ? tokens : GPU_LATENT_ROWS);
    const int splits = GPU_LATENT_ROWS / count;
    all->splits = splits < GPU_LATENT_SPLITS ? splits : GPU_LATENT_SPLITS;
    all->states = static_cast<float *>(memory);
    all->sums = all->states + static_cast<int64_t>(2) * GPU_LATENT_ROWS * all->heads;
    return count;
}

template <typename Q, typename T, typename C>
static berth_status gpu_latent_attend(const gpu_op *op, const gpu_latent_call &all, int count) {
    const gpu_grid grid = {dim3(static_cast<unsigned>(count), gpu_ceil(all.heads, GPU_LATENT_HEADS),
                                static_cast<unsigned>(all.splits)),
                           dim3(32, GPU_LATENT_HEADS), 0};
    return gpu_run(op, "attention to latent rows", grid, gpu_latent_kernel<Q, T, C>, all);
}

template <typename Y>
static berth_status gpu_latent_merge(const gpu_op *op, const gpu_latent_call &all, int count,
                                     const gpu_latent_field &y) {
    const gpu_grid grid = {dim3(static_cast<unsigned>(count), static_cast<unsigned>(all.heads)),
                           dim3(GPU_LATENT_THREADS), 0};
    return gpu_run(op, "the splits of latent attention", grid, gpu_latent_merge_kernel<Y>, all, y);
}

static inline gpu_latent_field gpu_latent_field_of(const berth_tensor *x) {
    return gpu_latent_field{berth_gpu_data(x), x->strides[0], x->strides[1]};
}

// The field from a token on.
template <typename T>
static inline gpu_latent_field gpu_latent_from(const gpu_latent_field &field, int64_t token) {
    return gpu_latent_field{static_cast<T *>(field.data) + token * field.token, field.token,
                            field.head};
}

// Rows of a cache of blocks, by this table.
static inline void gpu_latent_cached(gpu_latent_call *all, const berth_tensor *cache,
                                     const berth_tensor *table) {
    const int64_t bytes = BERTH_DTYPE_BITS(cache->dtype) / 8;
    all->block_size = static_cast<int>(cache->shape[1]);
    all->table = berth_gpu_data(table);
    all->table_dtype = table->dtype;
    all->table_gap = table->strides[0];
    all->keys = berth_gpu_data(cache);
    all->rotated = static_cast<const char *>(all->keys) + all->latent * bytes;
    all->key_gap = cache->shape[2];
    all->rotated_gap = cache->shape[2];
}

static inline berth_status gpu_latent_check(const berth_op_site *site, int64_t latent,
                                            int64_t rope) {
    return latent <= GPU_LATENT_MOST && latent + rope <= GPU_LATENT_WIDTH
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "latent rows of at most %d columns, %d with the rotated ones",
                                   GPU_LATENT_MOST, GPU_LATENT_WIDTH);
}

#endif
