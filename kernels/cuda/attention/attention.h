// SPDX-License-Identifier: Apache-2.0
// The two ways of cuda.paged_attention, for 16-bit types whose cache has the same or codes of
// f8_e4m3fn: decode, one new token a sequence, and prefill, more than one. Each passes over the
// sequences that are the other's.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_H
#define BERTH_KERNELS_CUDA_ATTENTION_H

#include <cuda/tile.h>
#include <gpu/attention.h>

#define CUDA_DECODE_HEADS 16 // query heads of a key head, at most

// By which decode turns queries and new keys on their way (rotary.h); their row is the token's.
struct cuda_decode_turn {
    const float *angles;   // [half] per position
    const void *positions; // [tokens]
    berth_dtype position_dtype;
    int64_t length; // of the rope
    float scale;
    float sign;
    int half; // pairs, a multiple of 8; 0: queries and keys have been turned
    int is_neox;
    int is_early; // positions are an array of the batch: there before any kernel of the step
};

// Partial results of a sequence whose keys several blocks have divided among them.
struct cuda_decode_room {
    float *parts;  // [sequence, kv_head, split][group][width + 2]
    int *arrivals; // [sequence, kv_head], zero between runs
    int splits;    // of a sequence's keys, at most
    int cluster;   // `splits`, which run together; 0: they need not
    // Every sequence has exactly one new token, whose key and value are not in the cache yet. Else
    // they are.
    int is_plain;
    cuda_decode_turn turn; // plain only
};

// Blocks that share a sequence's keys when there are so many sequences.
int cuda_decode_splits(int multiprocessors, int sequences, int kv_heads);
uint64_t cuda_decode_bytes(int multiprocessors, int max_sequences, int heads, int kv_heads,
                           int width);
berth_status cuda_decode(const gpu_op *op, const gpu_attention_call &call,
                         const cuda_decode_room &room, berth_dtype dtype);
// The same of more key heads of sequences than run at once; so many do, 0 where they are none of
// those that it takes, or the device is none that has tile copies and the shared memory.
int64_t cuda_decode_many_at_once(const gpu_op *op, const gpu_attention_call &call,
                                 berth_dtype dtype);
berth_status cuda_decode_many(const gpu_op *op, const gpu_attention_call &call,
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

// ---- both ---------------------------------------------------------------------------------------

// The beginning of an instance.
struct cuda_attention : gpu_attention {
    cuda_decode_room room;
    int multiprocessors;
    int max_sequences;
    int heads;
    int kv_heads;
    int width;
    cuda_tile_encode encode; // NULL: prefill without groups
};

// The sites and arguments are those of paged_attention.
berth_status cuda_attention_check(const berth_op_site *site, const berth_device *device);
// At start-up. What it keeps in device memory is the caller's to free, after a failure, too.
berth_status cuda_attention_read(const berth_op_site *site, const berth_device *device,
                                 cuda_attention *self);
void cuda_attention_free(const cuda_attention *self);
uint64_t cuda_attention_bytes(const cuda_attention *self); // of workspace
// Whether every sequence has one new token and decode's kernels take the operands as they lie.
int cuda_attention_is_decode(const gpu_attention_call &call, const berth_op_args *args);
// Any batch. `turn` NULL: query and key have been turned; else cuda_attention_is_decode.
berth_status cuda_attention_run(const cuda_attention *op, const gpu_attention_call &call,
                                const berth_op_args *args, const cuda_decode_turn *turn);

#endif
