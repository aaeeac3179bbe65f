// SPDX-License-Identifier: Apache-2.0
// The arithmetic of decode attention: a warp's scores of 16 keys, their weights, and the weighted
// sums of values, for all query heads of a key head at once. Only decode.cu and decode_many.cu
// include this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_SUMS_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_SUMS_H

#include <cuda/attention/decode_turn.h>

#include <math.h>

namespace {

#define LOG2E 1.4426950408889634f

// The queries of a key head as the tensor core's first operand: row g is head g of the group, 16
// bytes from element 8c + 32j on are two products' columns.
template <int WIDTH, bool IS_DEEP> struct queries {
    uint4 low[WIDTH / 32];
    uint4 high[IS_DEEP ? WIDTH / 32 : 1];
    float scales[2]; // that scores of heads g and g + 8 are multiplied by
};

// A head's running result: columns are elements 8n + tile + 64 · half for column n of a product.
template <int WIDTH> struct heads_sum {
    float out[WIDTH / 8][4];
    float largest[2]; // of heads g and g + 8
    float total[2];
};

// The largest of a row's scores over the four lanes that have it; likewise their sum.
__device__ float row_max(float value) {
    value = fmaxf(value, gpu_shuffle_xor(value, 1));
    return fmaxf(value, gpu_shuffle_xor(value, 2));
}
__device__ float row_sum(float value) {
    value += gpu_shuffle_xor(value, 1);
    return value + gpu_shuffle_xor(value, 2);
}

// A head's query of bf16 as f16, its largest element between 1 and 2 so that none is too large;
// returns the power of two that it is now smaller by.
template <int WIDTH> __device__ float narrow(uint4 *query) {
    uint32_t *pairs = &query->x;
    float largest = 0;
#pragma unroll
    for (int i = 0; i < WIDTH / 8; ++i) {
        largest = fmaxf(largest, fabsf(__uint_as_float(pairs[i] << 16)));
        largest = fmaxf(largest, fabsf(__uint_as_float(pairs[i] & 0xffff0000u)));
    }
    const uint32_t exponent = __float_as_uint(row_max(largest)) & 0x7f800000u;
    const bool is_ordinary = exponent > 0 && exponent < 0x7f000000u;
    const float power = is_ordinary ? __uint_as_float(exponent) : 1.0f;
    const float inverse = is_ordinary ? __uint_as_float(0x7f000000u - exponent) : 1.0f;
#pragma unroll
    for (int i = 0; i < WIDTH / 8; ++i) {
        pairs[i] = cuda_pair(__uint_as_float(pairs[i] << 16) * inverse,
                             __uint_as_float(pairs[i] & 0xffff0000u) * inverse, gpu_f16{});
    }
    return power;
}

// `scale`: of the keys.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
__device__ queries<WIDTH, IS_DEEP> load_queries(const new_rows<T, C, WIDTH> &rows, int group,
                                                float scale) {
    queries<WIDTH, IS_DEEP> out;
    out.scales[0] = out.scales[1] = scale;
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < WIDTH / 32; ++j) {
        out.low[j] = g < group ? load_row(rows.row(g) + 8 * c + 32 * j) : uint4{0, 0, 0, 0};
        if constexpr (IS_DEEP) {
            out.high[j] =
                g + 8 < group ? load_row(rows.row(g + 8) + 8 * c + 32 * j) : uint4{0, 0, 0, 0};
        }
    }
    if constexpr (sizeof(C) == 1 && gpu_is_bf16<T>) {
        out.scales[0] *= narrow<WIDTH>(out.low);
        if constexpr (IS_DEEP) {
            out.scales[1] *= narrow<WIDTH>(out.high);
        }
    }
    return out;
}

// Scores of the heads for 16 keys; tile t has keys 8t + 2c and + 1 of rows g and g + 8. All loads
// come first, so that the products wait for none of them.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
__device__ void score(const queries<WIDTH, IS_DEEP> &query, uint32_t keys, float (*scores)[4]) {
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
    uint4 rows[2][WIDTH / 32];
    float more[2][4] = {}; // a product waits for every second one before it
#pragma unroll
    for (int at = 0; at < 2 * (WIDTH / 32); ++at) {
        rows[at % 2][at / 2] = load_eight<C, WIDTH>(keys, at % 2 * 8 + g, c + at / 2 * 4);
    }
#pragma unroll
    for (int j = 0; j < WIDTH / 32; ++j) {
        const uint4 low = query.low[j];
        const uint4 high = IS_DEEP ? query.high[IS_DEEP ? j : 0] : uint4{0, 0, 0, 0};
        const uint32_t a[4] = {low.x, high.x, low.y, high.y};
        const uint32_t b[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
            const uint4 row = rows[tile][j];
            const uint32_t k[4] = {row.x, row.y, row.z, row.w};
            cuda_mma(scores[tile], a, k, typename multiplied<T, C>::type{});
            cuda_mma(more[tile], b, k + 2, typename multiplied<T, C>::type{});
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        scores[i / 4][i % 4] += more[i / 4][i % 4];
    }
}

// Pairs of element i of two rows: the second operand of a product wants two keys side by side.
__device__ uint32_t pair_of(const uint4 &first, const uint4 &second, int i) {
    const uint32_t *a = &first.x;
    const uint32_t *b = &second.x;
    return __byte_perm(a[i / 2], b[i / 2], i % 2 ? 0x7632 : 0x5410);
}

template <typename T, typename C, int WIDTH>
__device__ void add_values(const uint32_t *weights, uint32_t values, heads_sum<WIDTH> *sum) {
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < WIDTH / 64; ++half) {
        uint4 rows[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = 2 * c + i % 2 + i / 2 * 8;
            rows[i] = load_eight<C, WIDTH>(values, row, g + 8 * half);
        }
#pragma unroll
        for (int tile = 0; tile < 8; ++tile) {
            const uint32_t b[2] = {pair_of(rows[0], rows[1], tile),
                                   pair_of(rows[2], rows[3], tile)};
            cuda_mma(sum->out[half * 8 + tile], weights, b, typename multiplied<T, C>::type{});
        }
    }
}

// Scores to weights, in pairs as the first operand of the second product; the sums so far are
// scaled to the new largest score.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
__device__ void weigh(float (*scores)[4], uint32_t *weights, heads_sum<WIDTH> *sum) {
#pragma unroll
    for (int row = 0; row < (IS_DEEP ? 2 : 1); ++row) {
        float *first = &scores[0][2 * row];
        float *second = &scores[1][2 * row];
        const float most = fmaxf(fmaxf(first[0], first[1]), fmaxf(second[0], second[1]));
        const float largest = fmaxf(sum->largest[row], row_max(most));
        const float base = largest == -INFINITY ? 0 : largest; // nothing seen yet
        const float old = cuda_exp2(sum->largest[row] - base);
        first[0] = cuda_exp2(first[0] - base);
        first[1] = cuda_exp2(first[1] - base);
        second[0] = cuda_exp2(second[0] - base);
        second[1] = cuda_exp2(second[1] - base);
        sum->total[row] = sum->total[row] * old + first[0] + first[1] + second[0] + second[1];
        sum->largest[row] = largest;
#pragma unroll
        for (int i = 0; i < WIDTH / 8; ++i) {
            sum->out[i][2 * row] *= old;
            sum->out[i][2 * row + 1] *= old;
        }
        const typename multiplied<T, C>::type kind{};
        weights[row] = cuda_pair(first[0], first[1], kind);
        weights[2 + row] = cuda_pair(second[0], second[1], kind);
    }
    if (!IS_DEEP) {
        weights[1] = 0;
        weights[3] = 0;
    }
}

// Scaled, capped, in powers of two; hidden keys at minus infinity.
__device__ void mask(const gpu_attention_call &call, const share &mine, const float *scales,
                     int step, float (*scores)[4]) {
    const int c = threadIdx.x % 4;
    float *values = &scores[0][0];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        values[i] *= scales[i % 4 / 2];
    }
    if (call.soft_cap > 0) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            values[i] = gpu_soft_cap(values[i], call.soft_cap);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int key = step + i / 4 * 8 + 2 * c + i % 2;
        values[i] = key >= mine.first && key < mine.end ? values[i] * LOG2E : -INFINITY;
    }
}

// What the 16 keys and values of a stage, those from `step` on, add to the sums.
template <typename T, typename C, int WIDTH, bool IS_DEEP>
__device__ void add_keys(const gpu_attention_call &call, const share &mine,
                         const queries<WIDTH, IS_DEEP> &query, int step, uint32_t stage,
                         heads_sum<WIDTH> *sum) {
    float scores[2][4] = {};
    uint32_t weights[4];
    score<T, C, WIDTH, IS_DEEP>(query, stage, scores);
    mask(call, mine, query.scales, step, scores);
    weigh<T, C, WIDTH, IS_DEEP>(scores, weights, sum);
    add_values<T, C, WIDTH>(weights, stage + ROWS_BYTES<C, WIDTH>, sum);
}

} // namespace

#endif
