// SPDX-License-Identifier: Apache-2.0
// Which of a sequence's keys a block of decode attention has, and what is loaded before that is
// known. Only decode.cu and decode_many.cu include this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_SHARE_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_SHARE_H

#include <cuda/attention/attention.h>

#include <string.h>

namespace {

constexpr int MOST_WARPS = 4; // of a block
// Of a block where there are more blocks than run at once with four warps: then as many run at once
// as have work, and none begins when others end. Of still more, decode_many.cu.
constexpr int FEW_WARPS = 2;
constexpr int KEYS = 16;      // of a warp's step
constexpr int MIN_SHARE = 64; // keys of a block, so that its start is worth it
// Of a block of few warps, from which on they lie beside each other: 8 sequences of 4,096 keys took
// 44 us so, and 48 where blocks took turns.
constexpr int LONG_SHARE = 768;
constexpr int PARTS_TARGET = 2; // blocks for each multiprocessor
constexpr int MAX_PARTS = 256;  // of a sequence

struct decode_call {
    gpu_attention_call call;
    cuda_decode_room room;
};

// Why heads before shares: the blocks that have keys come first, and spread over all
// multiprocessors; those of one share read neighbouring rows.
__device__ int own_head() {
    return static_cast<int>(blockIdx.x);
}
__device__ int own_share() {
    return static_cast<int>(blockIdx.y);
}

// Which of the warps that share a key head this is, and how many they are. Those with another
// threadIdx.z have another key head, and wait for nobody.
__device__ int warp() {
    return static_cast<int>(threadIdx.y);
}
__device__ int warps() {
    return static_cast<int>(blockDim.y);
}
// All of them are here, and see what each has written to shared memory.
__device__ void gather() {
    if (warps() == 1) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// Which of a sequence's keys this block has: blocks take turns of KEYS for each of their warps, so
// that where a block begins needs no length; but for long shares of few warps.
struct share {
    int first;    // that the query sees
    int begin;    // the block's first, a multiple of KEYS
    int end;      // behind the last of the sequence
    int gap;      // to the block's next turn
    int position; // of the new token
    int parts;    // blocks that have keys
    bool has_new; // the position is one of the block's
};

__device__ int turn_keys() {
    return KEYS * warps();
}

// Why without divisions where there is a turn for each block: the ring is not filled before.
__device__ share share_of(const gpu_attention_call &call, int splits, int length) {
    share out;
    const int turn = turn_keys();
    out.position = length - 1;
    out.first = call.window > 0 && length > call.window ? length - call.window : 0;
    const int from = out.first / KEYS * KEYS;
    const int turns = (length - from + turn - 1) / turn;
    out.parts = turns;
    out.begin = from + own_share() * turn;
    out.end = length;
    out.has_new = own_share() == turns - 1;
    int rounds = 1;
    if (turns > splits || turn < MIN_SHARE) {
        rounds = max((turns + splits - 1) / splits, MIN_SHARE / turn);
        out.parts = (turns + rounds - 1) / rounds;
        out.has_new = own_share() < out.parts && (turns - 1) % out.parts == own_share();
    }
    out.gap = out.parts * turn;
    if (turn < MIN_SHARE && rounds * turn >= LONG_SHARE) {
        out.begin = from + own_share() * rounds * turn;
        out.end = min(out.begin + rounds * turn, length);
        out.gap = turn;
        out.has_new = own_share() == out.parts - 1;
    }
    return out;
}

// A key head of a sequence, and the keys that a block has of it.
struct task {
    int sequence;
    int token;
    int head;
    int group;
    share mine;
};

// What is loaded before the batch is known: where a warp's first keys are, unless a window hides
// them.
__device__ int first_step() {
    return own_share() * turn_keys() + warp() * KEYS;
}

template <typename N> __device__ N load_now(const N *from) {
    if constexpr (sizeof(N) == 8) {
        int64_t value;
        asm volatile("ld.global.b64 %0, [%1];" : "=l"(value) : "l"(from));
        return value;
    } else {
        uint32_t value;
        asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(from));
        N out;
        memcpy(&out, &value, sizeof out);
        return out;
    }
}

} // namespace

#endif
