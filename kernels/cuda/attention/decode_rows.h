// SPDX-License-Identifier: Apache-2.0
// Keys and values of decode attention on their way: which of a sequence's a block has, where they
// lie, and a warp's ring of stages in shared memory, which copies fill ahead of it. Rows lie there
// as in the cache, whose elements C are T or codes; codes become f16 as they are loaded from there.
// Only decode.cu includes this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_ROWS_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_ROWS_H

#include <cuda/attention/attention.h>
#include <cuda/codes_to_pairs.h>
#include <cuda/mma.h>
#include <cuda/pieces.h>

namespace {

constexpr int MOST_WARPS = 4; // of a block
// Of a block where there are more blocks than run at once with four warps: then as many run at once
// as have work, and none begins when others end. Of still more, one (decode.cu).
constexpr int FEW_WARPS = 2;
constexpr int KEYS = 16; // of a warp's step
// Of a warp's ring: as many bytes under way with rows of half the size.
template <typename C> constexpr int STAGES = sizeof(C) == 1 ? 5 : 3;
template <typename C> constexpr int AHEAD = STAGES<C> - 1;
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
template <typename T, typename C> struct cache_rows {
    const C *cache;
    const T *fresh;
    int64_t gap; // elements of a slot
};

constexpr int STORED = -1; // no position is new

__device__ uint4 load_row(const void *from) {
    return *static_cast<const uint4 *>(from);
}

// Where the block's rows are, and the position that is not in the cache yet, or STORED.
template <typename T, typename C> struct source {
    cache_rows<T, C> rows[2];
    uint64_t policy; // of the second cache
    float scales[2]; // of codes
    int fresh;
};

template <typename T, typename C, int WIDTH>
__device__ source<T, C> source_of(const gpu_attention_call &call, int token, int fresh) {
    const int64_t gap = static_cast<int64_t>(call.kv_heads) * WIDTH;
    const int64_t own = static_cast<int64_t>(own_head()) * WIDTH;
    const int64_t row = static_cast<int64_t>(token) * call.kv_heads + own_head();
    source<T, C> out;
    out.rows[0] = cache_rows<T, C>{static_cast<const C *>(call.key_cache) + own,
                                   gpu_row<const T>(call.key, row), gap};
    out.rows[1] = cache_rows<T, C>{static_cast<const C *>(call.value_cache) + own,
                                   gpu_row<const T>(call.value, row), gap};
    out.scales[0] = gpu_cache_scale(call.key_scale);
    out.scales[1] = gpu_cache_scale(call.value_scale);
    out.policy = cuda_read_once();
    out.fresh = fresh;
    return out;
}

// Elements of 16 bytes, and pieces of so many in a row.
template <typename C> constexpr int PIECE = gpu_wide<C>;
template <typename C, int WIDTH> constexpr int PIECES = WIDTH / PIECE<C>;

// The place of 16 bytes of a row in a stage. The exchange lets a lane group's reads of two rows'
// halves, and of four rows' pairs, meet in no bank; rows of 64 codes are too short for all of it.
template <typename C, int WIDTH> __device__ uint32_t place_of(int row, int piece) {
    const int exchanged = piece ^ (((row & 6) ^ ((row & 1) << 2)) & (PIECES<C, WIDTH> - 1));
    return static_cast<uint32_t>((row * PIECES<C, WIDTH> + exchanged) * 16);
}

// What is multiplied. Why f16 for codes, whatever T is: it has them all, one instruction makes two.
template <typename T, typename C> struct multiplied { using type = T; };
template <typename T> struct multiplied<T, gpu_f8> { using type = gpu_f16; };

// Eight elements of a row in a stage, from 8 · eight on.
template <typename C, int WIDTH> __device__ uint4 load_eight(uint32_t stage, int row, int eight) {
    if constexpr (sizeof(C) == 1) {
        const uint32_t half = static_cast<uint32_t>(eight % 2) * 8;
        return cuda_codes_to_pairs<gpu_f16>(
            cuda_load_shared_8(stage + place_of<C, WIDTH>(row, eight / 2) + half));
    } else {
        return cuda_load_shared(stage + place_of<C, WIDTH>(row, eight));
    }
}

// The key that row `row` of a step is filled with. Keys outside of the share are hidden and not
// read: one inside stands for each.
__device__ int key_of(const share &mine, int step, int row) {
    const int low = mine.first > step ? mine.first - step : 0;
    const int last = mine.end - 1 - step;
    return row < low ? low : row > last ? last : row;
}

// Of a stage: keys, then as many of values.
template <typename C, int WIDTH> constexpr uint32_t ROWS_BYTES = KEYS *WIDTH * sizeof(C);
template <typename C, int WIDTH> constexpr uint32_t STAGE_BYTES = 2 * ROWS_BYTES<C, WIDTH>;

// A warp's 16 keys and values from `step` on begin their way to a stage, but for those of the
// position `fresh`.
template <typename T, typename C, int WIDTH>
__device__ void fill_stage(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                           const source<T, C> &from, int step, uint32_t stage) {
    if (step >= mine.end) {
        cuda_end_group(); // empty, so that the count is right
        return;
    }
    const int64_t slot =
        (static_cast<int64_t>(blocks[step >> call.block_shift]) << call.block_shift) +
        (step & (call.block_size - 1));
    constexpr int ACROSS = PIECES<C, WIDTH>;
    const int piece = threadIdx.x % ACROSS;
#pragma unroll
    for (int row = threadIdx.x / ACROSS; row < KEYS; row += 32 / ACROSS) {
        const int key = key_of(mine, step, row);
        const int64_t at = (slot + key) * from.rows[0].gap + piece * PIECE<C>;
        const uint32_t to = stage + place_of<C, WIDTH>(row, piece);
        if (step + key != from.fresh) {
            cuda_copy_16_by(to, from.rows[0].cache + at, from.policy);
            cuda_copy_16_by(to + ROWS_BYTES<C, WIDTH>, from.rows[1].cache + at, from.policy);
        }
    }
    cuda_end_group();
}

// 16 bytes of the new key or value as the cache keeps them.
template <typename T, typename C>
__device__ uint4 fresh_piece(const cache_rows<T, C> &rows, float scale, int piece) {
    const T *row = rows.fresh + piece * PIECE<C>;
    if constexpr (sizeof(C) == 1) {
        const gpu_pack<T, 8> numbers[2] = {gpu_load<T, 8>(row, 0), gpu_load<T, 8>(row, 8)};
        gpu_pack<uint8_t, 16> codes;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            const float number = gpu_float(numbers[j / 8].at[j % 8]);
            codes.at[j] = gpu_to_f8_bits(__fdiv_rn(number, scale));
        }
        return *reinterpret_cast<const uint4 *>(&codes);
    } else {
        return load_row(row);
    }
}

// What fill_stage left out, at once.
template <typename T, typename C, int WIDTH>
__device__ void fill_fresh(const share &mine, const source<T, C> &from, int step, uint32_t stage) {
    constexpr int ACROSS = PIECES<C, WIDTH>;
    const int piece = threadIdx.x % ACROSS;
    if (from.fresh < step || from.fresh >= step + KEYS) {
        return;
    }
    const uint4 key = fresh_piece(from.rows[0], from.scales[0], piece);
    const uint4 value = fresh_piece(from.rows[1], from.scales[1], piece);
    for (int row = threadIdx.x / ACROSS; row < KEYS; row += 32 / ACROSS) {
        if (step + key_of(mine, step, row) == from.fresh) {
            const uint32_t to = stage + place_of<C, WIDTH>(row, piece);
            cuda_store_shared(to, key);
            cuda_store_shared(to + ROWS_BYTES<C, WIDTH>, value);
        }
    }
}

// The first stages. Before the kernel waits for its input: what earlier steps stored is there.
template <typename T, typename C, int WIDTH>
__device__ void fill_ahead(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                           const source<T, C> &from, uint32_t ring) {
    const int step = mine.begin + static_cast<int>(threadIdx.y) * KEYS;
#pragma unroll
    for (int ahead = 0; ahead < AHEAD<C>; ++ahead) {
        fill_stage<T, C, WIDTH>(call, mine, blocks, from, step + ahead * warps() * KEYS,
                                ring + ahead * STAGE_BYTES<C, WIDTH>);
    }
}

// The new token's key and value to their slot, by the block that has its position.
template <typename T, typename C, int WIDTH>
__device__ void store_new(const gpu_attention_call &call, const source<T, C> &from, int64_t slot) {
    const int piece = threadIdx.x;
    const int64_t to = (slot * call.kv_heads + own_head()) * WIDTH + piece * PIECE<C>;
    if (threadIdx.y == 0 && piece < PIECES<C, WIDTH>) {
        *reinterpret_cast<uint4 *>(static_cast<C *>(call.key_cache) + to) =
            fresh_piece(from.rows[0], from.scales[0], piece);
    }
    // Why not warp 1: a block may have one warp.
    if (static_cast<int>(threadIdx.y) == warps() - 1 && piece < PIECES<C, WIDTH>) {
        *reinterpret_cast<uint4 *>(static_cast<C *>(call.value_cache) + to) =
            fresh_piece(from.rows[1], from.scales[1], piece);
    }
}

} // namespace

#endif
