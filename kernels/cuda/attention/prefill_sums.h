// SPDX-License-Identifier: Apache-2.0
// The arithmetic of prefill attention without groups of warps: queries in shared memory, a warp's
// scores of a tile of 64 keys, their weights and the weighted sums of values in registers, with a
// running softmax. Rows lie in shared memory with their 16-byte pieces exchanged by the row's
// number, so that eight rows never meet in a bank.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_PREFILL_SUMS_H
#define BERTH_KERNELS_CUDA_ATTENTION_PREFILL_SUMS_H

#include <cuda/attention/prefill.h>
#include <cuda/pieces.h>
#include <cuda/shared.h>

namespace {

constexpr int WARPS = 4;
constexpr int ROWS = 128;               // queries of a block
constexpr int WARP_ROWS = ROWS / WARPS; // 32: two products' rows
constexpr int KEYS = 64;                // of a tile

// The place of 16 bytes in a tile of rows.
template <int WIDTH> __device__ uint32_t place_of(int row, int piece) {
    return static_cast<uint32_t>((row * (WIDTH / 8) + (piece ^ (row & 7))) * 16);
}

template <typename T, int WIDTH>
__device__ void load_queries(const gpu_attention_call &call, const cuda_task &job, uint32_t to) {
    for (int at = threadIdx.x; at < ROWS * WIDTH / 8; at += WARPS * 32) {
        const int row = at / (WIDTH / 8);
        const int piece = at % (WIDTH / 8);
        const int query = job.first_query + row;
        const bool is_there = query < job.tokens;
        const int64_t token = job.first_token + (is_there ? query : 0);
        const T *from = gpu_row<const T>(call.query, token * call.heads + blockIdx.x);
        cuda_copy_16(to + place_of<WIDTH>(row, piece), from + piece * 8, is_there);
    }
}

// 32 queries of a warp: sums, and of each lane's four rows the largest score and the total.
template <int WIDTH> struct rows_sum {
    float out[2][WIDTH / 8][4] = {};
    float largest[2][2] = {
        {-INFINITY, -INFINITY},
        {-INFINITY, -INFINITY}
    };
    float total[2][2] = {};
};

// Both halves of a warp's queries by pair n of the columns.
template <typename T, int N>
__device__ void multiply(const uint32_t (*a)[4], const uint32_t *b, float (*sums)[N][4], int n) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        cuda_mma(sums[m][2 * n], a[m], b, T{});
        cuda_mma(sums[m][2 * n + 1], a[m], b + 2, T{});
    }
}

template <typename T, int WIDTH>
__device__ void score(uint32_t queries, uint32_t keys, float (*scores)[KEYS / 8][4]) {
    const int lane = threadIdx.x % 32;
    const int warp_row = threadIdx.x / 32 * WARP_ROWS;
#pragma unroll
    for (int d = 0; d < WIDTH / 16; ++d) {
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            const int row = warp_row + m * 16 + lane % 16;
            cuda_load_matrices(queries + place_of<WIDTH>(row, 2 * d + lane / 16), a[m]);
        }
#pragma unroll
        for (int n = 0; n < KEYS / 16; ++n) {
            uint32_t b[4];
            const int row = n * 16 + lane % 8 + lane / 16 * 8;
            cuda_load_matrices(keys + place_of<WIDTH>(row, 2 * d + lane / 8 % 2), b);
            multiply<T>(a, b, scores, n);
        }
    }
}

// Keys that a query must not see at minus infinity; scores in powers of two.
__device__ void mask(const gpu_attention_call &call, const cuda_task &job, int first_key, int m,
                     float (*scores)[4]) {
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x / 32 * WARP_ROWS + m * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int position = job.offset + job.first_query + row + i / 2 * 8;
            const int key = first_key + n * 8 + 2 * (lane % 4) + i % 2;
            const bool is_seen =
                key <= position && (call.window == 0 || key > position - call.window);
            scores[n][i] = is_seen ? scores[n][i] : -INFINITY;
        }
    }
}

// The scales are in it afterwards; `scale` is that of the keys.
__device__ void cap(const gpu_attention_call &call, float scale, float (*scores)[4]) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[n][i] = gpu_soft_cap(scores[n][i] * (call.scale * scale), call.soft_cap);
        }
    }
}

// Whether some query of the block does not see some key of the tile.
__device__ bool is_cut(const gpu_attention_call &call, const cuda_task &job, int first_key) {
    const int first = job.offset + job.first_query;
    return first_key + KEYS - 1 > first ||
           (call.window > 0 && first_key <= first + ROWS - 1 - call.window);
}

// Scores to weights and the sums to the new largest scores; `scale` is to powers of two.
template <int WIDTH>
__device__ void weigh(float (*scores)[4], int m, float scale, rows_sum<WIDTH> *sum) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
            most = fmaxf(most, fmaxf(scores[n][2 * row], scores[n][2 * row + 1]));
        }
        const float largest = fmaxf(sum->largest[m][row], cuda_row_max(most));
        const float base = largest == -INFINITY ? 0 : largest * scale;
        const float old = cuda_exp2(sum->largest[m][row] * scale - base);
        float total = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
            scores[n][2 * row] = cuda_exp2(fmaf(scores[n][2 * row], scale, -base));
            scores[n][2 * row + 1] = cuda_exp2(fmaf(scores[n][2 * row + 1], scale, -base));
            total += scores[n][2 * row] + scores[n][2 * row + 1];
        }
        sum->total[m][row] = sum->total[m][row] * old + total;
        sum->largest[m][row] = largest;
#pragma unroll
        for (int i = 0; i < WIDTH / 8; ++i) {
            sum->out[m][i][2 * row] *= old;
            sum->out[m][i][2 * row + 1] *= old;
        }
    }
}

// What the scores of keys of that scale are multiplied by on their way to powers of two.
__device__ float power_scale(const gpu_attention_call &call, float scale) {
    return (call.soft_cap > 0 ? 1 : call.scale * scale) * LOG2E;
}

// The scores of the tile from `first_key` on to weights, for both halves of a warp's queries.
template <int WIDTH>
__device__ void soften(const gpu_attention_call &call, const cuda_task &job, int first_key,
                       float (*scores)[KEYS / 8][4], rows_sum<WIDTH> *sum) {
    const float keys = gpu_cache_scale(call.key_scale);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        if (call.soft_cap > 0) {
            cap(call, keys, scores[m]);
        }
        if (is_cut(call, job, first_key)) {
            mask(call, job, first_key, m, scores[m]);
        }
        weigh<WIDTH>(scores[m], m, power_scale(call, keys), sum);
    }
}

template <typename T, int WIDTH>
__device__ void add_values(uint32_t values, const float (*scores)[KEYS / 8][4],
                           rows_sum<WIDTH> *sum) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            const float *first = scores[m][2 * k];
            const float *second = scores[m][2 * k + 1];
            a[m][0] = cuda_pair(first[0], first[1], T{});
            a[m][1] = cuda_pair(first[2], first[3], T{});
            a[m][2] = cuda_pair(second[0], second[1], T{});
            a[m][3] = cuda_pair(second[2], second[3], T{});
        }
#pragma unroll
        for (int d = 0; d < WIDTH / 16; ++d) {
            uint32_t b[4];
            cuda_load_turned(values + place_of<WIDTH>(k * 16 + lane % 16, 2 * d + lane / 16), b);
            multiply<T>(a, b, sum->out, d);
        }
    }
}

// Row `row` of a lane's two in one half of the queries, which is a token's.
template <typename T, int WIDTH>
__device__ void write_row(const gpu_attention_call &call, int64_t token, const float (*out)[4],
                          int row, float share) {
    T *to = gpu_row<T>(call.out, token * call.heads + blockIdx.x);
#pragma unroll
    for (int i = 0; i < WIDTH / 8; ++i) {
        *reinterpret_cast<uint32_t *>(to + i * 8 + 2 * (threadIdx.x % 4)) =
            cuda_pair(out[i][2 * row] * share, out[i][2 * row + 1] * share, T{});
    }
}

template <typename T, int WIDTH>
__device__ void write_out(const gpu_attention_call &call, const cuda_task &job,
                          const rows_sum<WIDTH> &sum) {
    const float scale = power_scale(call, gpu_cache_scale(call.key_scale));
    const int first = job.first_query + threadIdx.x / 32 * WARP_ROWS + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int m = i / 2;
        const int row = i % 2;
        const int query = first + m * 16 + row * 8;
        float factor;
        const float total =
            cuda_total(call, sum.largest[m][row] * scale, sum.total[m][row], &factor);
        if (query < job.tokens) {
            write_row<T, WIDTH>(call, job.first_token + query, sum.out[m], row,
                                factor / total * gpu_cache_scale(call.value_scale));
        }
    }
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename K>
berth_status start_prefill(const gpu_op *op, const gpu_attention_call &call, int longest, K *kernel,
                           uint32_t bytes) {
    const berth_status has_room = cuda_allow_shared(op, kernel, bytes);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(call.heads), gpu_ceil(longest, ROWS),
                                static_cast<unsigned>(call.sequences)),
                           dim3(WARPS * 32), bytes};
    return gpu_run(op, "paged_attention's prefill", grid, kernel, call);
}

} // namespace

#endif
