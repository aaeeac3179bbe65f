// SPDX-License-Identifier: Apache-2.0
// The two ways of cuda.paged_attention, for 16-bit types whose cache has the same or codes of
// f8_e4m3fn: decode, one new token a sequence, and prefill, more than one. Each passes over the
// sequences that are the other's.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_H
#define BERTH_KERNELS_CUDA_ATTENTION_H

#include <cuda/tile.h>
#include <gpu/attention.h>

#define CUDA_DECODE_HEADS 16 // query heads of a key head, at most

// Partial results of a sequence whose keys several blocks have divided among them.
struct cuda_decode_room {
    float *parts;  // [sequence, kv_head, split][group][width + 2]
    int *arrivals; // [sequence, kv_head], zero between runs
    int splits;    // of a sequence's keys, at most
    // Every sequence has exactly one new token, whose key and value are not in the cache yet. Else
    // they are.
    int is_plain;
};

// Blocks that share a sequence's keys when there are so many sequences.
int cuda_decode_splits(int multiprocessors, int sequences, int kv_heads);
uint64_t cuda_decode_bytes(int multiprocessors, int max_sequences, int heads, int kv_heads,
                           int width);
berth_status cuda_decode(const gpu_op *op, const gpu_attention_call &call,
                         const cuda_decode_room &room, berth_dtype dtype);
// `longest`: new tokens of one sequence.
berth_status cuda_prefill(const gpu_op *op, const gpu_attention_call &call, int longest,
                          berth_dtype dtype);

// What it does with caches of codes.
berth_status cuda_prefill_codes(const gpu_op *op, const gpu_attention_call &call, int longest,
                                berth_dtype dtype);

struct cuda_prefill_call {
    const gpu_attention_call *all;
    int longest;
    cuda_tile_encode encode;
};

// The same for heads of 128 where groups of warps multiply together, and caches without codes.
berth_status cuda_prefill_group(const gpu_op *op, const cuda_prefill_call &call, berth_dtype dtype);

#endif
