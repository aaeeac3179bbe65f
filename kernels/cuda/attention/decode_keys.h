// SPDX-License-Identifier: Apache-2.0
// The arithmetic of decode attention for at most 8 query heads of a key head, keys and values being
// the tensor core's first operand: half the products that decode_sums.h needs, whose first operand
// are query heads, and half the sums to keep. Rows of 128 elements of 16 bits lie in a stage as
// cuda_head_stream brings them: eight rows' pieces of 16 bytes meet in no bank. Only decode_many.cu
// includes this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_KEYS_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_KEYS_H

#include <cuda/attention/decode_parts.h>
#include <cuda/tile.h>
#include <cuda/wgmma.h>

#include <float.h>

namespace {

constexpr int WIDTH = 128;
constexpr int MOST_GROUP = 8; // query heads of a key head
constexpr int TILES = WIDTH / 16;
constexpr uint32_t PANEL_ROW = CUDA_TILE_COLUMNS * 2; // bytes

// Of 16 bytes of a row among the stage's keys, or among its values.
__device__ uint32_t key_place(int row, int piece) {
    return static_cast<uint32_t>(piece / 8 * KEYS) * PANEL_ROW + cuda_panel_place(row, piece % 8);
}

// The queries as second operand: pairs of head lane / 4, two for each 16 elements.
struct key_queries {
    uint32_t pairs[TILES][2];
    float scale; // of scores, to powers of two unless they are capped
};

// Sums of values: of tile i, elements 16i + lane / 4 and that + 8 of heads 2 (lane % 4) and + 1.
// Totals are of the keys that the lane has seen, and as the sums in powers of two from `base` on,
// which all lanes of a head have and no score has been more than MOST_ABOVE above.
struct key_sums {
    float out[TILES][4];
    float base[2];
    float total[2];
};

// Weights have room for so much more than 1. Why: a base follows the first keys and then stays,
// where the largest score of the eight lanes of a head would be looked for with every step.
constexpr float MOST_ABOVE = 8;
constexpr float NO_BASE = -FLT_MAX;

// Over the eight lanes that have the same heads.
__device__ float heads_max(float value) {
    value = fmaxf(value, gpu_shuffle_xor(value, 4));
    value = fmaxf(value, gpu_shuffle_xor(value, 8));
    return fmaxf(value, gpu_shuffle_xor(value, 16));
}
__device__ float heads_sum_of(float value) {
    value += gpu_shuffle_xor(value, 4);
    value += gpu_shuffle_xor(value, 8);
    return value + gpu_shuffle_xor(value, 16);
}

// Scores of 16 keys: 0 and 1 of key lane / 4, 2 and 3 of that + 8.
template <typename T>
__device__ void key_scores(const key_queries &query, uint32_t keys, float *scores) {
    const int lane = threadIdx.x;
    const int row = lane % 16;
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        uint32_t rows[4];
        cuda_load_matrices(keys + key_place(row, 2 * i + lane / 16), rows);
        cuda_mma(scores, rows, query.pairs[i], T{});
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        scores[i] *= query.scale;
    }
}

// Capped, in powers of two; hidden keys at minus infinity.
__device__ void key_mask(const gpu_attention_call &call, const share &mine, int step,
                         float *scores) {
    if (call.soft_cap > 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[i] = gpu_soft_cap(scores[i], call.soft_cap) * LOG2E;
        }
    }
    if (step >= mine.first && step + KEYS <= mine.end) {
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int key = step + static_cast<int>(threadIdx.x) / 4 + i / 2 * 8;
        scores[i] = key >= mine.first && key < mine.end ? scores[i] : -INFINITY;
    }
}

// `most`: the lane's largest score of each head.
__device__ void raise_base(const float *most, key_sums *sum) {
    float old[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float base = fmaxf(sum->base[i], heads_max(most[i]));
        old[i] = cuda_exp2(sum->base[i] - base);
        sum->total[i] *= old[i];
        sum->base[i] = base;
    }
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            sum->out[i][j] *= old[j % 2];
        }
    }
}

// Scores to weights, as the second operand of the product with values.
template <typename T> __device__ void key_weights(float *scores, uint32_t *weights, key_sums *sum) {
    const float most[2] = {fmaxf(scores[0], scores[2]), fmaxf(scores[1], scores[3])};
    if (__any_sync(0xffffffffu,
                   most[0] > sum->base[0] + MOST_ABOVE || most[1] > sum->base[1] + MOST_ABOVE)) {
        raise_base(most, sum);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        scores[i] = cuda_exp2(scores[i] - sum->base[i]);
        scores[2 + i] = cuda_exp2(scores[2 + i] - sum->base[i]);
        sum->total[i] += scores[i] + scores[2 + i];
    }
    weights[0] = cuda_turn_matrix(cuda_pair(scores[0], scores[1], T{}));
    weights[1] = cuda_turn_matrix(cuda_pair(scores[2], scores[3], T{}));
}

template <typename T>
__device__ void key_values(const uint32_t *weights, uint32_t values, key_sums *sum) {
    const int lane = threadIdx.x;
    const int row = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        uint32_t rows[4];
        cuda_load_turned(values + key_place(row, 2 * i + lane / 8 % 2), rows);
        cuda_mma(sum->out[i], rows, weights, T{});
    }
}

// What the 16 keys and values of a stage, those from `step` on, add to the sums.
template <typename T>
__device__ void key_step(const gpu_attention_call &call, const share &mine,
                         const key_queries &query, int step, uint32_t stage, key_sums *sum) {
    float scores[4] = {};
    uint32_t weights[2];
    key_scores<T>(query, stage, scores);
    key_mask(call, mine, step, scores);
    key_weights<T>(scores, weights, sum);
    key_values<T>(weights, stage + ROWS_BYTES<T, WIDTH>, sum);
}

// From rows of new_rows; heads that there are none of are zero.
template <typename ROWS>
__device__ key_queries load_key_queries(const gpu_attention_call &call, const ROWS &rows,
                                        int group) {
    key_queries out;
    out.scale = call.scale * gpu_cache_scale(call.key_scale);
    out.scale *= call.soft_cap > 0 ? 1 : LOG2E;
    const int lane = threadIdx.x;
    const uint32_t row = static_cast<uint32_t>(__cvta_generic_to_shared(rows.row(lane % 8)));
#pragma unroll
    for (int i = 0; i < TILES / 2; ++i) {
        uint32_t pairs[4];
        cuda_load_matrices(row + static_cast<uint32_t>(4 * i + lane / 8) * 16, pairs);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            out.pairs[2 * i + j / 2][j % 2] = lane / 4 < group ? pairs[j] : 0;
        }
    }
    return out;
}

// The attention of the query heads; by one warp, which has seen all keys.
template <typename T>
__device__ void write_key_sums(const gpu_attention_call &call, const task &job,
                               const key_sums &sum) {
    const int c = threadIdx.x % 4;
    float scale[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const common all = {
            {0, 0, 0, 0},
            sum.base[i], heads_sum_of(sum.total[i])
        };
        const int head = min(2 * c + i, job.group - 1); // who writes nothing reads no sink
        float factor;
        const float total = with_sink(call, job.head * job.group + head, all, &factor);
        scale[i] = factor * gpu_cache_scale(call.value_scale) / total;
    }
    const int own = static_cast<int>(threadIdx.x) / 4;
    T *row = gpu_row<T>(call.out,
                        static_cast<int64_t>(job.token) * call.heads + job.head * job.group + own);
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) {
        const float *of = &sum.out[i / 2][i % 2 * 2];
        const uint32_t pair = cuda_turn_matrix(cuda_pair(of[0] * scale[0], of[1] * scale[1], T{}));
        if (own < job.group) {
            *reinterpret_cast<uint32_t *>(row + 8 * i + 2 * c) = pair;
        }
    }
}

} // namespace

#endif
