// SPDX-License-Identifier: Apache-2.0
// What streamed_codes.cu, which alone includes this, brings into shared memory: stages of codes by
// one thread, and a copy of x by the warps that multiply.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_RING_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_RING_H

#include <cuda/codes/streamed_stage.h>

namespace {

// Barriers of stage 0; those of the others follow in steps of 8 bytes.
struct ring {
    uint32_t memory;
    uint32_t full;
    uint32_t empty;
    int stages;
    // x and its sums where it is near
    uint32_t x;
    uint32_t gap;
    uint32_t sums;
};

using place = cuda_place;

// A stage: bytes from `byte` on of the rows of a tile. Codes of 8 bits, as `codes` describes them:
// panels, whose rows' 16-byte pieces are exchanged by the row's number, so that lanes read them
// from different banks; what is behind the end is zeros. Why not a copy a row: to start so many
// takes longer than the memory needs for the bytes. Codes of 4 bits come by rows, behind which
// those whose x is near have scales and zero points.
template <typename K>
__device__ void bring_stage(const cuda_coded &all, const ring &to, const CUtensorMap *codes,
                            const position &now, int stage) {
    const int first = now.first;
    const int byte = now.begin;
    constexpr bool HAS_SCALES = K::IS_NEAR && K::X_RATIO > 1;
    const uint32_t more = HAS_SCALES ? OUTPUTS * (SCALES + (all.zeros ? ZEROS : 0)) : 0;
    const uint32_t full = to.full + 8 * stage;
    const uint32_t memory = to.memory + stage * STAGE_BYTES;
    if constexpr (K::X_RATIO == 1) {
        cuda_barrier_expect(full, OUTPUTS * STAGE);
#pragma unroll
        for (int panel = 0; panel < STAGE / PANEL; ++panel) {
            cuda_tile_stream(memory + panel * PANEL_BYTES, codes, (byte + panel * PANEL) / 8, first,
                             full);
        }
        return;
    }
    const uint32_t count = static_cast<uint32_t>(min(STAGE, all.bytes - byte));
    const uint8_t *rows = all.weight + static_cast<int64_t>(first) * all.bytes + byte;
    cuda_barrier_expect(full, OUTPUTS * count + more);
#pragma unroll
    for (int row = 0; row < OUTPUTS; ++row) {
        cuda_bulk_copy(memory + row * STAGE_ROW, rows + static_cast<int64_t>(row) * all.bytes,
                       count, full);
    }
    if constexpr (HAS_SCALES) {
        const int64_t group = static_cast<int64_t>(first) * all.across + byte / PIECE;
#pragma unroll
        for (int row = 0; row < OUTPUTS; ++row) {
            const int64_t number = group + static_cast<int64_t>(row) * all.across;
            const uint32_t beside = memory + row * STAGE_ROW + STAGE;
            cuda_bulk_copy(beside, all.group_scales + number, SCALES, full);
            if (all.zeros) {
                cuda_bulk_copy(beside + SCALES, all.zeros + number, ZEROS, full);
            }
        }
    } else if (all.group_scales) {
        // A stage's scales are a few bytes of a row: on their way to the second cache.
        const uint16_t *scales = all.group_scales + byte / (all.group / 2);
#pragma unroll
        for (int row = 0; row < OUTPUTS; ++row) {
            gpu_fetch(scales + static_cast<int64_t>(first + row) * all.across);
        }
    }
}

// Stages that a block has under way at a time: codes of 8 bits always, those of 4 while the ring
// fills for the first time, as their sums come later than the memory could bring more. Why not all:
// they come before others' small loads, those of the kernels that still run and those of this one's
// own inputs; 26 MB at once keep them waiting for up to 6 us. Products of which the ring holds much
// have more time than they need. One request of Llama-3-8B on an H200, ms a step in fp8: 2.47 with
// all under way, 2.40 with one stage at first and 2.42 with two, 2.35 so at first and 2.32 always;
// by codes of 4 bits 1.86, so 1.84, always two 1.87.
__device__ int under_way(const cuda_coded &all, const ring &to) {
    const int tiles = (all.outputs + OUTPUTS - 1) / OUTPUTS;
    const int each = (tiles + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
    return each * ((all.bytes + STAGE - 1) / STAGE) > 2 * to.stages ? 2 : 1;
}

// By the elected thread of a warp. Why not each lane a row: copies take their operands from
// registers that a warp has one of, so they come one after the other all the same, in a loop over
// the lanes that takes longer than the memory needs for the bytes.
template <typename K>
__device__ void bring(const cuda_coded &all, const ring &to, const CUtensorMap *codes) {
    const int step = static_cast<int>(gridDim.x) * OUTPUTS;
    const int most = under_way(all, to);
    int begun = 0;
    place at = {0, 1}; // the first round waits for nobody
    place landed = {0, 0};
    for (int first = static_cast<int>(blockIdx.x) * OUTPUTS; first < all.outputs; first += step) {
        for (int byte = 0; byte < all.bytes; byte += STAGE) {
            cuda_barrier_wait(to.empty + 8 * at.stage, at.parity);
            if (begun++ >= most && (K::X_RATIO == 1 || begun <= to.stages)) {
                cuda_barrier_wait(to.full + 8 * landed.stage, landed.parity);
                landed.go_on(to.stages);
            }
            bring_stage<K>(all, to, codes, {first, byte}, at.stage);
            at.go_on(to.stages);
        }
    }
}

// Of the warps that multiply.
template <typename K> __device__ void wait_for_all() {
    asm volatile("bar.sync 1, %0;" ::"n"(K::WARPS * 32) : "memory");
}

// ---- a copy of x --------------------------------------------------------------------------------

__device__ void store_shared(uint32_t to, const uint32_t *words) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}

__device__ void store_shared_32(uint32_t to, uint32_t word) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

// The sum of 16 bytes of x and of those of the 15 threads beside this one.
__device__ float group_sum(const uint4 &x) {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum += __uint_as_float(words[i] << 16) + __uint_as_float(words[i] & 0xffff0000u);
    }
    for (int mask = GROUP_PIECES / 2; mask > 0; mask /= 2) {
        sum += gpu_shuffle_xor(sum, mask);
    }
    return sum;
}

// Where 16 bytes of x for codes of 4 bits lie. Of the 16 such pieces that a step takes a lane of
// each four has four in a row; its first lies beside the first of the others, so that the four load
// from different banks.
__device__ constexpr int place_of(int piece) {
    return piece / GROUP_PIECES * GROUP_PIECES + piece % 4 * 4 + piece % GROUP_PIECES / 4;
}

// 16 bytes of x, as they are multiplied; for codes that are taken where they are also the sums of
// their groups. By whole warps.
template <typename K>
__device__ void keep_piece(const ring &to, int row, int piece, const uint4 &x) {
    uint32_t words[4] = {x.x, x.y, x.z, x.w};
    if constexpr (K::X_RATIO > 1) {
        cuda_interleave(x, words);
        if constexpr (K::IS_TAKEN) {
            const float sum = group_sum(x) * CUDA_TAKEN_UNIT;
            cuda_match(words);
            if (piece % GROUP_PIECES == 0) {
                const uint32_t number = static_cast<uint32_t>(piece / GROUP_PIECES * 8 + row);
                store_shared_32(to.sums + 4 * number, __float_as_uint(sum));
            }
        }
    }
    const int place = K::X_RATIO > 1 ? place_of(piece) : piece;
    store_shared(to.x + static_cast<uint32_t>(row) * to.gap + 16 * static_cast<uint32_t>(place),
                 words);
}

// Of so many pieces of a row those of a thread: number `first`, and COUNT - 1 more, one for all
// threads apart. Of 4 bits either all threads have one or none.
template <typename K, int COUNT>
__device__ void keep_pieces(const ring &to, int row, int first, int pieces, const uint4 *x) {
    if constexpr (K::IN_DIGITS) {
        if (first < pieces) {
            K::template keep<COUNT>(to, first, pieces, x);
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int piece = first + i * K::WARPS * 32;
            if (piece < pieces) {
                keep_piece<K>(to, row, piece, x[i]);
            }
        }
    }
}

template <typename K> __device__ void keep_inputs(const cuda_coded &all, const ring &to) {
    constexpr int AT_ONCE = K::X_RATIO > 1 ? 8 : 4; // more codes of 8 bits take longer
    constexpr int THREADS = K::WARPS * 32;
    const int pieces = all.bytes * (K::X_RATIO > 1 ? 4 : 1) / 16;
    const int thread = threadIdx.y * 32 + threadIdx.x;
    for (int row = 0; row < all.rows; ++row) {
        const uint4 *x = reinterpret_cast<const uint4 *>(all.x + row * all.x_gap);
        for (int first = 0; first < pieces; first += AT_ONCE * THREADS) {
            uint4 held[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int piece = first + i * THREADS + thread;
                held[i] = piece < pieces ? x[piece] : uint4{0, 0, 0, 0};
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i += 2) {
                keep_pieces<K, 2>(to, row, first + i * THREADS + thread, pieces, &held[i]);
            }
        }
    }
    wait_for_all<K>();
}

} // namespace

#endif
