// SPDX-License-Identifier: Apache-2.0
// Keys and values of decode attention on their way: which of a sequence's a block has, where they
// lie, and a warp's ring of stages in shared memory, which copies fill ahead of it. Only decode.cu
// includes this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_ROWS_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_ROWS_H

#include <cuda/attention/attention.h>
#include <cuda/bulk.h>
#include <cuda/mma.h>

namespace {

constexpr int MOST_WARPS = 4; // of a block
// Of a block where there are more blocks than run at once with four warps: then as many run at once
// as have work, and none begins when others end.
constexpr int FEW_WARPS = 2;
constexpr int KEYS = 16;  // of a warp's step
constexpr int STAGES = 3; // of a warp's ring
constexpr int AHEAD = STAGES - 1;
constexpr int MIN_SHARE = 64;   // keys of a block, so that its start is worth it
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

__device__ int warps() {
    return static_cast<int>(blockDim.y);
}

// A sequence's keys [begin, end) of this block, in steps of KEYS.
struct share {
    int first; // that the query sees
    int begin; // a multiple of KEYS
    int end;
    int position; // of the new token
    int parts;    // blocks that have keys
};

__device__ share share_of(const gpu_attention_call &call, int sequence, int splits) {
    share out;
    const int length = call.lengths[sequence];
    out.position = length - 1;
    out.first = call.window > 0 && length > call.window ? length - call.window : 0;
    const int from = out.first / KEYS * KEYS;
    int each = (length - from + splits - 1) / splits;
    const int step = KEYS * warps();
    each = each < MIN_SHARE ? MIN_SHARE : (each + step - 1) / step * step;
    out.parts = (length - from + each - 1) / each;
    out.begin = from + own_share() * each;
    out.end = out.begin + each < length ? out.begin + each : length;
    return out;
}

// Where the rows of positions lie; that of the new token is its input while it is not stored.
template <typename T> struct cache_rows {
    const T *cache;
    const T *fresh;
    int64_t gap; // elements of a slot
};

constexpr int STORED = -1; // no position is new

__device__ uint4 load_row(const void *from) {
    return *static_cast<const uint4 *>(from);
}

// Where the block's rows are, and the position that is not in the cache yet, or STORED.
template <typename T> struct source {
    cache_rows<T> rows[2];
    int fresh;
};

template <typename T, int WIDTH>
__device__ source<T> source_of(const gpu_attention_call &call, int token, int fresh) {
    const int64_t gap = static_cast<int64_t>(call.kv_heads) * WIDTH;
    const int64_t own = static_cast<int64_t>(own_head()) * WIDTH;
    const int64_t row = static_cast<int64_t>(token) * call.kv_heads + own_head();
    return source<T>{
        {{static_cast<const T *>(call.key_cache) + own, gpu_row<const T>(call.key, row), gap},
         {static_cast<const T *>(call.value_cache) + own, gpu_row<const T>(call.value, row), gap}},
        fresh,
    };
}

// The place of 16 bytes of a row in a stage. The exchange lets a lane group's reads of two rows'
// halves, and of four rows' pairs, meet in no bank.
template <int WIDTH> __device__ uint32_t place_of(int row, int piece) {
    const int exchanged = piece ^ ((row & 6) ^ ((row & 1) << 2));
    return static_cast<uint32_t>((row * (WIDTH / 8) + exchanged) * 16);
}

__device__ void store_shared(uint32_t to, const uint4 &value) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

// The key that row `row` of a step is filled with. Keys outside of the share are hidden and not
// read: one inside stands for each.
__device__ int key_of(const share &mine, int step, int row) {
    const int low = mine.first > step ? mine.first - step : 0;
    const int last = mine.end - 1 - step;
    return row < low ? low : row > last ? last : row;
}

// Of a stage: keys, then values.
template <int WIDTH> constexpr uint32_t STAGE_BYTES = 2 * KEYS *WIDTH * 2;

// A warp's 16 keys and values from `step` on begin their way to a stage, but for those of the
// position `fresh`.
template <typename T, int WIDTH>
__device__ void fill_stage(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                           const cache_rows<T> *rows, int step, int fresh, uint32_t stage) {
    constexpr int PIECES = WIDTH / 8;
    if (step >= mine.end) {
        cuda_end_group(); // empty, so that the count is right
        return;
    }
    const int64_t slot =
        (static_cast<int64_t>(blocks[step >> call.block_shift]) << call.block_shift) +
        (step & (call.block_size - 1));
    const int piece = threadIdx.x % PIECES;
#pragma unroll
    for (int row = threadIdx.x / PIECES; row < KEYS; row += 32 / PIECES) {
        const int key = key_of(mine, step, row);
        const int64_t from = (slot + key) * rows->gap + piece * 8;
        if (step + key != fresh) {
            cuda_copy_16(stage + place_of<WIDTH>(row, piece), rows[0].cache + from, true);
            cuda_copy_16(stage + KEYS * WIDTH * 2 + place_of<WIDTH>(row, piece),
                         rows[1].cache + from, true);
        }
    }
    cuda_end_group();
}

// What fill_stage left out, at once.
template <typename T, int WIDTH>
__device__ void fill_fresh(const share &mine, const cache_rows<T> *rows, int step, int fresh,
                           uint32_t stage) {
    constexpr int PIECES = WIDTH / 8;
    const int piece = threadIdx.x % PIECES;
    if (fresh < step || fresh >= step + KEYS) {
        return;
    }
    const uint4 key = load_row(rows[0].fresh + piece * 8);
    const uint4 value = load_row(rows[1].fresh + piece * 8);
    for (int row = threadIdx.x / PIECES; row < KEYS; row += 32 / PIECES) {
        if (step + key_of(mine, step, row) == fresh) {
            store_shared(stage + place_of<WIDTH>(row, piece), key);
            store_shared(stage + KEYS * WIDTH * 2 + place_of<WIDTH>(row, piece), value);
        }
    }
}

// The first stages. Before the kernel waits for its input: what earlier steps stored is there.
template <typename T, int WIDTH>
__device__ void fill_ahead(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                           const cache_rows<T> *rows, int fresh, uint32_t ring) {
    const int step = mine.begin + static_cast<int>(threadIdx.y) * KEYS;
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ++ahead) {
        fill_stage<T, WIDTH>(call, mine, blocks, rows, step + ahead * warps() * KEYS, fresh,
                             ring + ahead * STAGE_BYTES<WIDTH>);
    }
}

// The new token's key and value to their slot, by the block that has its position.
template <typename T, int WIDTH>
__device__ void store_new(const gpu_attention_call &call, int token, int64_t slot) {
    const int at = (static_cast<int>(threadIdx.x) % (WIDTH / 8)) * 8;
    const int64_t from = static_cast<int64_t>(token) * call.kv_heads + own_head();
    const int64_t to = (slot * call.kv_heads + own_head()) * WIDTH + at;
    if (threadIdx.y == 0 && threadIdx.x < WIDTH / 8) {
        *reinterpret_cast<uint4 *>(static_cast<T *>(call.key_cache) + to) =
            load_row(gpu_row<const T>(call.key, from) + at);
    }
    if (threadIdx.y == 1 && threadIdx.x < WIDTH / 8) {
        *reinterpret_cast<uint4 *>(static_cast<T *>(call.value_cache) + to) =
            load_row(gpu_row<const T>(call.value, from) + at);
    }
}

} // namespace

#endif
