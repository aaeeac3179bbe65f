// SPDX-License-Identifier: Apache-2.0
// Attention to latent rows on a GPU, for mla and mla_decode: a row serves as key and, without its
// rotated columns, as value, and all heads share it. A block has eight heads of a token and some of
// the keys that it sees, a warp a head; keys come through shared memory, so that they are read once
// for eight heads. The splits of a token's keys are put together by a second kernel, from the first
// to the last. All in f32.
#ifndef BERTH_KERNELS_GPU_LATENT_H
#define BERTH_KERNELS_GPU_LATENT_H

#include "sequences.h"

#define GPU_LATENT_HEADS   8   // of a block
#define GPU_LATENT_KEYS    16  // at once in shared memory
#define GPU_LATENT_MOST    512 // latent columns
#define GPU_LATENT_WIDTH   576 // and the rotated ones
#define GPU_LATENT_ROWS    256 // tokens times splits that the memory between the kernels is for
#define GPU_LATENT_SPLITS  16
#define GPU_LATENT_THREADS 256

// Rows by token and head; strides in elements.
struct gpu_latent_field {
    void *data;
    int64_t token;
    int64_t head;
};

template <typename T>
static __device__ inline T *gpu_latent_at(const gpu_latent_field &field, int64_t token, int head) {
    return static_cast<T *>(field.data) + token * field.token + head * field.head;
}

struct gpu_latent_call {
    gpu_sequences sequences;
    const void *lengths; // of the sequences, new tokens included
    berth_dtype lengths_dtype;
    const void *table; // of blocks; NULL: sequence after sequence
    berth_dtype table_dtype;
    int64_t table_gap; // elements
    int block_size;
    const void *keys; // latent columns of a row
    const void *rotated;
    int64_t key_gap; // elements from row to row
    int64_t rotated_gap;
    gpu_latent_field query;         // its latent columns
    gpu_latent_field query_rotated; // of x's type
    float *sums;                    // [tokens, heads, splits, latent]
    float *states;                  // [tokens, heads, splits, 2]: largest score, sum of weights
    int first;                      // token of the call with which these begin
    int heads;
    int latent;
    int rope;
    int splits;
    float scale;
};

// ---- keys ---------------------------------------------------------------------------------------

// What a token sees.
struct gpu_latent_view {
    int sequence;
    int64_t context; // row of the first key where there is no table
    int begin;       // keys of this split
    int end;
};

static __device__ inline gpu_latent_view gpu_latent_find(const gpu_latent_call &all) {
    const int token = all.first + static_cast<int>(blockIdx.x);
    gpu_latent_view out = {};
    out.sequence = gpu_sequence_of(all.sequences, token);
    const gpu_sequence sequence = gpu_sequence_at(all.sequences, out.sequence);
    const int64_t length = gpu_integer(all.lengths, all.lengths_dtype, out.sequence);
    const int seen = static_cast<int>(length - (sequence.end - token) + 1);
    const int share = (seen + all.splits - 1) / all.splits;
    for (int i = 0; i < out.sequence && !all.table; ++i) {
        out.context += gpu_integer(all.lengths, all.lengths_dtype, i);
    }
    out.begin = static_cast<int>(blockIdx.z) * share;
    out.end = out.begin + share < seen ? out.begin + share : seen;
    return out;
}

static __device__ inline int64_t gpu_latent_row(const gpu_latent_call &all,
                                                const gpu_latent_view &view, int key) {
    if (!all.table) {
        return view.context + key;
    }
    const int64_t at = view.sequence * all.table_gap + key / all.block_size;
    return gpu_integer(all.table, all.table_dtype, at) * all.block_size + key % all.block_size;
}

// Keys from `key` on into shared memory, a row a warp.
template <typename C>
static __device__ inline void gpu_latent_load(const gpu_latent_call &all,
                                              const gpu_latent_view &view, int key,
                                              float (*tile)[GPU_LATENT_WIDTH]) {
    for (int line = threadIdx.y; line < GPU_LATENT_KEYS && key + line < view.end;
         line += GPU_LATENT_HEADS) {
        const int64_t row = gpu_latent_row(all, view, key + line);
        const C *latent = static_cast<const C *>(all.keys) + row * all.key_gap;
        const C *rotated = static_cast<const C *>(all.rotated) + row * all.rotated_gap;
        for (int i = threadIdx.x; i < all.latent; i += 32) {
            tile[line][i] = gpu_float(latent[i]);
        }
        for (int i = threadIdx.x; i < all.rope; i += 32) {
            tile[line][all.latent + i] = gpu_float(rotated[i]);
        }
    }
}

// ---- a head -------------------------------------------------------------------------------------

// A warp's query and its running softmax; a lane has every 32nd column.
struct gpu_latent_head {
    float query[GPU_LATENT_WIDTH / 32];
    float sums[GPU_LATENT_MOST / 32];
    float largest;
    float total;

    template <typename Q, typename T>
    __device__ void begin(const gpu_latent_call &all, int64_t token, int head) {
        const Q *latent = gpu_latent_at<const Q>(all.query, token, head);
        const T *rotated = gpu_latent_at<const T>(all.query_rotated, token, head);
        const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
        for (int i = 0; i < GPU_LATENT_WIDTH / 32; ++i) {
            const int at = lane + 32 * i;
            query[i] = at < all.latent              ? gpu_float(latent[at])
                       : at < all.latent + all.rope ? gpu_float(rotated[at - all.latent])
                                                    : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < GPU_LATENT_MOST / 32; ++i) {
            sums[i] = 0;
        }
        largest = -INFINITY;
        total = 0;
    }
    __device__ void take(const gpu_latent_call &all, const float *key) {
        const int width = all.latent + all.rope;
        const int lane = static_cast<int>(threadIdx.x);
        float dot = 0;
#pragma unroll
        for (int i = 0; i < GPU_LATENT_WIDTH / 32; ++i) {
            dot += lane + 32 * i < width ? query[i] * key[lane + 32 * i] : 0.0f;
        }
        const float score = gpu_warp_sum(dot) * all.scale;
        const float next = fmaxf(largest, score);
        const float old = expf(largest - next);
        const float weight = expf(score - next);
        largest = next;
        total = total * old + weight;
#pragma unroll
        for (int i = 0; i < GPU_LATENT_MOST / 32; ++i) {
            sums[i] =
                sums[i] * old + (lane + 32 * i < all.latent ? weight * key[lane + 32 * i] : 0.0f);
        }
    }
    __device__ void end(const gpu_latent_call &all, int64_t part) const {
        const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
        for (int i = 0; i < GPU_LATENT_MOST / 32; ++i) {
            if (lane + 32 * i < all.latent) {
                all.sums[part * all.latent + lane + 32 * i] = sums[i];
            }
        }
        if (lane == 0) {
            all.states[2 * part] = largest;
            all.states[2 * part + 1] = total;
        }
    }
};

// blockIdx.x: the token; blockIdx.y: which heads; blockIdx.z: the split. Q: the query's latent
// columns; T: the rotated ones; C: the keys.
template <typename Q, typename T, typename C>
static __global__ void gpu_latent_kernel(gpu_latent_call all) {
    __shared__ float tile[GPU_LATENT_KEYS][GPU_LATENT_WIDTH];
    const int wanted = static_cast<int>(blockIdx.y) * GPU_LATENT_HEADS + threadIdx.y;
    const int head = wanted < all.heads ? wanted : all.heads - 1; // so that all warps load
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const gpu_latent_view view = gpu_latent_find(all);
    gpu_latent_head state;
    state.begin<Q, T>(all, blockIdx.x, head);
    for (int key = view.begin; key < view.end; key += GPU_LATENT_KEYS) {
        gpu_latent_load<C>(all, view, key, tile);
        __syncthreads();
        for (int line = 0; line < GPU_LATENT_KEYS && key + line < view.end; ++line) {
            state.take(all, tile[line]);
        }
        __syncthreads();
    }
    if (wanted < all.heads) {
        state.end(all,
                  (static_cast<int64_t>(blockIdx.x) * all.heads + head) * all.splits + blockIdx.z);
    }
}

// Puts a head's splits together: blockIdx.x: the token; blockIdx.y: the head. Y is float where the
// result goes on.
template <typename Y>
static __global__ void gpu_latent_merge_kernel(gpu_latent_call all, gpu_latent_field y) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int head = static_cast<int>(blockIdx.y);
    const int64_t first = (static_cast<int64_t>(blockIdx.x) * all.heads + head) * all.splits;
    float largest = -INFINITY;
    for (int split = 0; split < all.splits; ++split) {
        largest = fmaxf(largest, all.states[2 * (first + split)]);
    }
    float total = 0;
    for (int split = 0; split < all.splits; ++split) {
        const float its = all.states[2 * (first + split)];
        total +=
            its == -INFINITY ? 0.0f : all.states[2 * (first + split) + 1] * expf(its - largest);
    }
    for (int i = threadIdx.x; i < all.latent; i += GPU_LATENT_THREADS) {
        float sum = 0;
        for (int split = 0; split < all.splits; ++split) {
            const float its = all.states[2 * (first + split)];
            sum += its == -INFINITY
                       ? 0.0f
                       : all.sums[(first + split) * all.latent + i] * expf(its - largest);
        }
        gpu_latent_at<Y>(y, blockIdx.x, head)[i] = gpu_round<Y>(total > 0 ? sum / total : sum);
    }
}

#endif
