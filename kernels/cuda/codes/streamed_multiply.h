// SPDX-License-Identifier: Apache-2.0
// The kernel that streamed_codes.cu describes: the warps that multiply, and how a block begins.
// What x is made of is known to the file that launches it.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_MULTIPLY_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_MULTIPLY_H

#include <cuda/codes/streamed_digits.h>

namespace {

// ---- the warps that multiply --------------------------------------------------------------------

// 8 bits: a lane's 16 bytes of every piece. 4 bits: what belongs to its 16 bytes of one.
template <typename K> constexpr int APART = K::X_RATIO == 1 ? PIECE : 16;

template <typename K, int EIGHTS>
__device__ void load_inputs(const cuda_coded &all, int byte, inputs<EIGHTS> *out) {
#pragma unroll
    for (int i = 0; i < K::X_LOADS; ++i) {
        const bool is_there = byte + (K::X_RATIO == 1 ? i * PIECE : 0) < all.bytes;
        const int at = byte * K::X_RATIO + i * APART<K>;
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight) {
            const int row = eight * 8 + threadIdx.x / 4;
            out->at[eight][i] = is_there && row < all.rows
                                    ? *reinterpret_cast<const uint4 *>(all.x + at + row * all.x_gap)
                                    : uint4{0, 0, 0, 0};
        }
    }
}

// Of x that is near, `from` 0: lanes of rows that are not there keep what they have, zeros. Why not
// another row's: of one row a load then takes a fourth of the time of shared memory.
template <typename K> __device__ void load_near(uint32_t from, int byte, inputs<1> *out) {
#pragma unroll
    for (int i = 0; i < K::X_LOADS; ++i) {
        cuda_load_shared_if(from != 0,
                            from + static_cast<uint32_t>(byte * K::X_RATIO + i * K::X_APART),
                            &out->at[0][i]);
    }
}

// One step's codes out of a stage, from byte `part` of its rows on. Of 4 bits: what a short last
// stage leaves of the one before it, `there` bytes from the lane's first on, is zero.
template <typename K>
__device__ void load_codes(uint32_t stage, int part, [[maybe_unused]] int there, codes *out) {
    const uint32_t row = threadIdx.x / 4;
    const uint32_t lane = threadIdx.x % 4;
    [[maybe_unused]] const uint4 none = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < K::PIECES; ++i) {
        const uint32_t at = static_cast<uint32_t>(part + i * PIECE);
        if constexpr (K::X_RATIO == 1) {
            const uint32_t from = stage + at / PANEL * PANEL_BYTES + row * PANEL +
                                  (((lane ^ row) * 16) ^ (at & PIECE));
            out[i].low = cuda_load_shared(from);
            out[i].high = cuda_load_shared(from + 8 * PANEL);
        } else {
            const uint32_t from = stage + row * STAGE_ROW + at + lane * 16;
            const bool is_there = K::IS_NEAR || i * PIECE < there;
            const uint4 low = cuda_load_shared(from);
            const uint4 high = cuda_load_shared(from + 8 * STAGE_ROW);
            out[i].low = is_there ? low : none;
            out[i].high = is_there ? high : none;
        }
    }
}

// Bits of all that a thread has loaded.
template <typename K> __device__ uint32_t loaded_of(const codes *w) {
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < K::PIECES; ++i) {
        any |= w[i].low.x | w[i].high.x;
    }
    return any;
}

// A tile's sums of a warp; rows padded by one.
template <typename K, int EIGHTS> struct room_of {
    static constexpr int ROWS = K::IN_DIGITS ? 1 : EIGHTS * 8;
    typename K::sum at[ROWS][OUTPUTS + 1];
};

// Two, so that a tile's sums are not written over while the last one's are read, where two blocks
// then still have room for their rings.
template <typename K, int EIGHTS> constexpr int ROOMS = K::WARPS *EIGHTS > 8 ? 1 : 2;

// The results of a tile that a thread finishes: number i of them is of this row and output.
template <typename K, int EIGHTS> struct results {
    static constexpr int COUNT =
        (room_of<K, EIGHTS>::ROWS * OUTPUTS + K::WARPS * 32 - 1) / (K::WARPS * 32);
    finishing with[COUNT];

    // Another warp's threads come first in every tile: few rows are one warp's work.
    static __device__ int number(int turn, int i) {
        const int thread = threadIdx.y * 32 + threadIdx.x;
        return (thread + turn * 32) % (K::WARPS * 32) + i * K::WARPS * 32;
    }
    __device__ void prepare(const cuda_coded &all, int first, int turn) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int row = number(turn, i) / OUTPUTS;
            const int output = first + number(turn, i) % OUTPUTS;
            with[i] = finishing{};
            if (row < all.rows && output < all.outputs) {
                with[i] = K::prepare(all, row, output);
                with[i].bias = all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f;
            }
        }
    }
};

// A warp's sums to where all find them.
template <typename K, int EIGHTS>
__device__ void leave(const typename K::template sums<EIGHTS> &sums, room_of<K, EIGHTS> *room) {
    if constexpr (K::IN_DIGITS) {
        sums.leave(room);
    } else {
#pragma unroll
        for (int eight = 0; eight < EIGHTS; ++eight) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                room->at[eight * 8 + threadIdx.x % 4 * 2 + i % 2][threadIdx.x / 4 + i / 2 * 8] =
                    sums.total(eight, i);
            }
        }
    }
}

// The warps' sums together, scaled, rounded, to y.
template <typename T, typename K, int EIGHTS>
__device__ void finish(const cuda_coded &all, const typename K::template sums<EIGHTS> &sums,
                       const results<K, EIGHTS> &mine, room_of<K, EIGHTS> *room, int first,
                       int turn) {
    leave<K, EIGHTS>(sums, &room[threadIdx.y]);
    wait_for_all<K>();
#pragma unroll
    for (int i = 0; i < results<K, EIGHTS>::COUNT; ++i) {
        const int number = results<K, EIGHTS>::number(turn, i);
        const int row = number / OUTPUTS;
        const int output = first + number % OUTPUTS;
        if (row < all.rows && output < all.outputs) {
            typename K::sum sum = 0;
#pragma unroll
            for (int warp = 0; warp < K::WARPS; ++warp) {
                sum += room[warp].at[row][number % OUTPUTS];
            }
            static_cast<T *>(all.y)[row * all.y_gap + output] =
                gpu_round<T>(K::finish(sum, mine.with[i]) + mine.with[i].bias);
        }
    }
}

// What a warp has loaded ahead: x of the next step, and what a kind wants of the next stage. Both
// go on from tile to tile.
template <typename K, int EIGHTS> struct ahead {
    inputs<EIGHTS> x[2];
    typename K::extra of[2];
    uint32_t near; // the lane's first x of a row, where that is near; 0: the row is not there
};

// One stage, TURN of two: a copy from one x to the other would wait for what is under way.
template <typename K, int EIGHTS, int TURN>
__device__ void multiply_stage(const cuda_coded &all, const ring &from, const position &now,
                               place *at, ahead<K, EIGHTS> *loaded,
                               typename K::template sums<EIGHTS> *sums) {
    const int part = static_cast<int>(threadIdx.y) * (STAGE / K::WARPS);
    const int mine = part + threadIdx.x % 4 * 16;
    const uint32_t beside =
        from.memory + at->stage * STAGE_BYTES + threadIdx.x / 4 * STAGE_ROW + STAGE;
    const position next = now.next(all);
    loaded->of[TURN ^ 1].load(all, next.first, next.begin + part, from.sums);
    cuda_barrier_wait(from.full + 8 * at->stage, at->parity);
    uint32_t bits = 0;
#pragma unroll
    for (int step = 0; step < K::STEPS; ++step) {
        const int turn = (TURN * K::STEPS + step) % 2;
        const int byte = now.begin + mine + step * PIECE;
        codes w[K::PIECES];
        if constexpr (K::IS_NEAR) {
            load_near<K>(loaded->near, now.begin + step * PIECE, &loaded->x[turn]);
        } else {
            load_inputs<K, EIGHTS>(all, step + 1 < K::STEPS ? byte + PIECE : next.begin + mine,
                                   &loaded->x[turn ^ 1]);
        }
        load_codes<K>(from.memory + at->stage * STAGE_BYTES, part + step * PIECE, all.bytes - byte,
                      w);
        bits |= loaded->of[TURN].fetch(all, beside, step);
        K::template multiply<EIGHTS>(w, loaded->x[turn], loaded->of[TURN],
                                     all.scale_dtype == BERTH_DTYPE_BF16, step, sums);
        bits |= loaded_of<K>(w);
    }
    const uint32_t empty = cuda_behind_loads(from.empty + 8 * at->stage, bits, all.bytes);
    __syncwarp();
    if (threadIdx.x == 0) {
        cuda_barrier_arrive(empty);
    }
    at->go_on(from.stages);
}

} // namespace

#endif
