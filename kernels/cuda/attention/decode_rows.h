// SPDX-License-Identifier: Apache-2.0
// Keys and values of decode attention on their way: where they lie, and a warp's ring of stages in
// shared memory, which copies fill ahead of it. Rows lie there as in the cache, whose elements C
// are T or codes; codes become f16 as they are loaded from there. Only decode.cu and decode_many.cu
// include this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_ROWS_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_ROWS_H

#include <cuda/attention/decode_share.h>
#include <cuda/codes_to_pairs.h>
#include <cuda/mma.h>
#include <cuda/pieces.h>

namespace {

// Of a warp's ring: as many bytes under way with rows of half the size.
template <typename C> constexpr int STAGES = sizeof(C) == 1 ? 5 : 3;
template <typename C> constexpr int AHEAD = STAGES<C> - 1;

constexpr int STORED = -1; // no position is new

__device__ uint4 load_row(const void *from) {
    return *static_cast<const uint4 *>(from);
}

// Where the block's keys and values are, and the position that is not in the caches yet, or STORED.
template <typename C> struct source {
    const C *caches[2];
    int gap; // elements of a slot
    int fresh;
    uint64_t policy; // of the second cache
};

template <typename C, int WIDTH>
__device__ source<C> source_of(const gpu_attention_call &call, int head, int fresh) {
    const int own = head * WIDTH;
    return source<C>{
        {static_cast<const C *>(call.key_cache) + own,
         static_cast<const C *>(call.value_cache) + own},
        call.kv_heads * WIDTH,
        fresh,
        cuda_read_once()
    };
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
template <typename C, int WIDTH>
constexpr uint32_t RING_BYTES = STAGES<C> *STAGE_BYTES<C, WIDTH>; // of a warp

// A warp's 16 keys and values from `step` on, in block `block` of the cache, begin their way to a
// stage, but for those of the position `fresh`. Why not unrolled, here and in what else runs once
// or twice: a step of a model has more code than a multiprocessor keeps, so what a kernel has of it
// is fetched anew at each launch, and that takes longer than to run it.
template <typename C, int WIDTH>
__device__ void fill_stage(const gpu_attention_call &call, const share &mine, const source<C> &from,
                           int block, int step, uint32_t stage) {
    if (step < mine.end) {
        const int64_t slot =
            (static_cast<int64_t>(block) << call.block_shift) + (step & (call.block_size - 1));
        constexpr int ACROSS = PIECES<C, WIDTH>;
        const int piece = threadIdx.x % ACROSS;
        const int gap = from.gap;
        const int64_t first = slot * gap + piece * PIECE<C>;
        const C *keys = from.caches[0] + first;
        const C *values = from.caches[1] + first;
#pragma unroll 1
        for (int row = threadIdx.x / ACROSS; row < KEYS; row += 32 / ACROSS) {
            const int key = key_of(mine, step, row);
            const uint32_t to = stage + place_of<C, WIDTH>(row, piece);
            if (step + key != from.fresh) {
                cuda_copy_16_by(to, keys + key * gap, from.policy);
                cuda_copy_16_by(to + ROWS_BYTES<C, WIDTH>, values + key * gap, from.policy);
            }
        }
    }
    cuda_end_group(); // empty behind the last key, so that the count is right
}

// Of a new row what becomes 16 bytes of the cache.
template <typename T, typename C> struct fresh_piece {
    uint4 at[sizeof(T) / sizeof(C)];

    __device__ void load(const T *row, int piece) {
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(T) / sizeof(C)); ++i) {
            at[i] = load_row(row + piece * PIECE<C> + i * 8);
        }
    }
    __device__ uint4 finish(float scale) const {
        if constexpr (sizeof(C) == 1) {
            gpu_pack<uint8_t, 16> codes;
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                const float number =
                    gpu_float(reinterpret_cast<const gpu_pack<T, 8> *>(at)[j / 8].at[j % 8]);
                codes.at[j] = gpu_to_f8_bits(__fdiv_rn(number, scale));
            }
            return *reinterpret_cast<const uint4 *>(&codes);
        } else {
            return at[0];
        }
    }
};

// A lane's piece of the new key and value.
struct fresh_rows {
    uint4 key;
    uint4 value;
};

template <typename C, int WIDTH> __device__ int own_piece() {
    return static_cast<int>(threadIdx.x) % PIECES<C, WIDTH>;
}

// What fill_stage left out of a stage.
template <typename C, int WIDTH>
__device__ void fill_fresh(const share &mine, const source<C> &from, const fresh_rows &fresh,
                           int step, uint32_t stage) {
    constexpr int ACROSS = PIECES<C, WIDTH>;
    if (from.fresh < step || from.fresh >= step + KEYS) {
        return;
    }
#pragma unroll 1
    for (int row = threadIdx.x / ACROSS; row < KEYS; row += 32 / ACROSS) {
        if (step + key_of(mine, step, row) == from.fresh) {
            const uint32_t to = stage + place_of<C, WIDTH>(row, own_piece<C, WIDTH>());
            cuda_store_shared(to, fresh.key);
            cuda_store_shared(to + ROWS_BYTES<C, WIDTH>, fresh.value);
        }
    }
}

__device__ int block_of(const gpu_attention_call &call, const int32_t *blocks, const share &mine,
                        int step) {
    return step < mine.end ? blocks[step >> call.block_shift] : 0;
}

// The first stages. Before the kernel waits for its input: what earlier steps stored is there.
// `guess`: the block of step first_step().
template <typename C, int WIDTH>
__device__ void fill_ahead(const gpu_attention_call &call, const share &mine, const int32_t *blocks,
                           const source<C> &from, uint32_t ring, int guess) {
    int step = mine.begin + warp() * KEYS;
    int block = step == first_step() ? guess : block_of(call, blocks, mine, step);
#pragma unroll 1
    for (int ahead = 0; ahead < AHEAD<C>; ++ahead) {
        const int next = step + mine.gap;
        const int behind = block_of(call, blocks, mine, next);
        fill_stage<C, WIDTH>(call, mine, from, block, step, ring + ahead * STAGE_BYTES<C, WIDTH>);
        step = next;
        block = behind;
    }
}

// The new token's key and value to their slot, by the block that has its position.
template <typename C, int WIDTH>
__device__ void store_new(const gpu_attention_call &call, int head, const fresh_rows &fresh,
                          int64_t slot) {
    const int piece = threadIdx.x;
    const int64_t to = (slot * call.kv_heads + head) * WIDTH + piece * PIECE<C>;
    if (warp() == 0 && piece < PIECES<C, WIDTH>) {
        *reinterpret_cast<uint4 *>(static_cast<C *>(call.key_cache) + to) = fresh.key;
    }
    // Why not warp 1: a block may have one warp.
    if (warp() == warps() - 1 && piece < PIECES<C, WIDTH>) {
        *reinterpret_cast<uint4 *>(static_cast<C *>(call.value_cache) + to) = fresh.value;
    }
}

} // namespace

#endif
