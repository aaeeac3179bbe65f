// SPDX-License-Identifier: Apache-2.0
// Attention of several new tokens a sequence with heads of 128 on Hopper: a block has 192 queries
// and one head. Four warps bring tiles of 128 keys and values into a ring in shared memory; three
// groups of four warps have 64 queries each. None runs products beside its own softmax: while one
// group has its softmax, the tensor cores have those of two others.
//
// Why three: of two groups each had products beside its softmax, which takes the registers of a
// third, and every key was brought for 128 queries only. What a query costs in copies is what
// counts: without any, two groups took 11 % less time, and without turns on the tensor cores, or
// with queries in registers, no less. At 8,191 tokens, 32 heads and 8 key heads: 961 us, not 996,
// and 1,244, not 1,280, where products of 8-bit codes before it have the clock down at 1.48 GHz.
// What did not pay: groups that take turns on the tensor cores (10 % longer), weights relative to
// an earlier tile's largest score with a check behind them (6 %), and tiles that two heads' blocks
// of a cluster share (4 %).
#include <cuda/attention/prefill.h>
#include <cuda/attention/prefill_tiles.h>
#include <cuda/shared.h>
#include <cuda/wgmma.h>

#include <math.h>

extern "C" int32_t cuda_code_has_groups(void);

namespace {

constexpr int WIDTH = CUDA_KEYS_WIDTH;
constexpr int KEYS = CUDA_KEYS;
constexpr int GROUPS = 3;
constexpr int THREADS = (GROUPS + 1) * 128; // the last group brings tiles
constexpr int ROWS = GROUPS * 64;           // queries of a block
constexpr int PIECES = WIDTH / 8;
constexpr uint32_t QUERIES_PANEL = ROWS * 128;
constexpr uint32_t SHARED_BYTES = 2 * QUERIES_PANEL + 2 * CUDA_KEYS_STAGES * CUDA_KEYS_BYTES;
// 128 to each thread of four groups at the start.
constexpr int BRINGING_REGISTERS = 32;
constexpr int MULTIPLYING_REGISTERS = 160;
// Powers of two by which scores may pass the one that weights are relative to before the sums are
// scaled anew: far from what 16-bit weights or sums of f32 could not hold.
constexpr float SLACK = 8;

__device__ int kernels_have_groups = CUDA_HAS_WGMMA;

struct group_call {
    gpu_attention_call all;
    CUtensorMap keys; // the caches, [slots, kv_heads · width]
    CUtensorMap values;
};

// Where a group's operands are, and its task.
struct group_of {
    cuda_task job;
    cuda_keys_ring keys;
    cuda_keys_ring values;
    uint32_t queries;
    int number;
    int row; // the lane's first query in the block
};

// ---- barriers of a block's threads --------------------------------------------------------------

// Number 0 is __syncthreads.
__device__ void group_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

// ---- a group's steps ----------------------------------------------------------------------------

template <typename T>
__device__ void load_queries(const gpu_attention_call &call, const group_of &own) {
    const int thread = threadIdx.x % 128;
    const int piece = thread % PIECES;
#pragma unroll
    for (int i = 0; i < 64 * PIECES / 128; ++i) {
        const int row = thread / PIECES + i * (128 / PIECES);
        const int query = own.job.first_query + own.number * 64 + row;
        const bool is_there = query < own.job.tokens;
        const int64_t token = own.job.first_token + (is_there ? query : 0);
        const T *from = gpu_row<const T>(call.query, token * call.heads + blockIdx.x);
        cuda_copy_16(own.queries + static_cast<uint32_t>(piece / 8) * QUERIES_PANEL +
                         cuda_panel_place(row, piece % 8),
                     from + piece * 8, is_there);
    }
    cuda_end_group();
    cuda_wait_groups<0>();
    cuda_publish_shared();
    group_sync(own.number);
}

// A warp's 16 queries: of each lane's two rows the score that weights are relative to and the
// total.
struct rows_state {
    float largest[2];
    float total[2];
};

// Scores [16][4] of 64 queries for a tile of keys begin.
template <typename T> __device__ void begin_scores(uint32_t queries, uint32_t keys, float *scores) {
#pragma unroll
    for (int d = 0; d < WIDTH / 16; ++d) {
        const uint32_t panel = d / 4;
        const uint32_t query = queries + panel * QUERIES_PANEL + d % 4 * 32;
        const uint32_t key = keys + panel * CUDA_KEYS_PANEL + d % 4 * 32;
        cuda_group_rows<T>(scores, cuda_matrix(query, 0), cuda_matrix(key, 0), d > 0);
    }
    cuda_group_commit();
}

// The weighted values of a tile begin to be added.
template <typename T>
__device__ void begin_values(const uint32_t (*weights)[4], uint32_t values, float *out) {
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
        cuda_group_columns<T>(out, weights[k], cuda_matrix(values + k * 16 * 128, CUDA_KEYS_PANEL));
    }
    cuda_group_commit();
}

// Hidden keys at minus infinity. `row` is the lane's first query in the block.
__device__ void mask(const gpu_attention_call &call, const cuda_task &job, int first_key, int row,
                     float *scores) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int position = job.offset + job.first_query + row + i / 2 * 8;
            const int key = first_key + n * 8 + 2 * (threadIdx.x % 4) + i % 2;
            const bool is_seen =
                key <= position && (call.window == 0 || key > position - call.window);
            scores[n * 4 + i] = is_seen ? scores[n * 4 + i] : -INFINITY;
        }
    }
}

// The scale is in it afterwards.
__device__ void cap(const gpu_attention_call &call, float *scores) {
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) {
        scores[i] = gpu_soft_cap(scores[i] * call.scale, call.soft_cap);
    }
}

// The largest score of each of the lane's two rows.
__device__ void find_largest(const float *scores, float *largest) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        float most[2] = {scores[2 * row], scores[2 * row + 1]};
#pragma unroll
        for (int n = 1; n < KEYS / 8; ++n) {
            most[0] = fmaxf(most[0], scores[n * 4 + 2 * row]);
            most[1] = fmaxf(most[1], scores[n * 4 + 2 * row + 1]);
        }
        largest[row] = cuda_row_max(fmaxf(most[0], most[1]));
    }
}

// Scores to weights. Whether the sums so far must be scaled, by `old`: the same for a warp.
__device__ bool weigh(float *scores, float scale, rows_state *state, float *old) {
    float largest[2];
    find_largest(scores, largest);
    bool grows = false;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        grows |= largest[row] * scale > state->largest[row] * scale + SLACK;
    }
    grows = __any_sync(0xffffffffu, grows);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        const float before = state->largest[row];
        const float now = grows ? fmaxf(before, largest[row]) : before;
        const float base = now == -INFINITY ? 0 : now * scale;
        old[row] = cuda_exp2(fmaf(before, scale, -base));
        state->largest[row] = now;
        float total[2] = {};
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float *score = &scores[n * 4 + 2 * row + i];
                *score = cuda_exp2(fmaf(*score, scale, -base));
                total[i] += *score;
            }
        }
        state->total[row] = fmaf(state->total[row], old[row], total[0] + total[1]);
    }
    return grows;
}

template <typename T> __device__ void pair_up(const float *scores, uint32_t (*weights)[4]) {
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
        const float *first = scores + 8 * k;
        weights[k][0] = cuda_pair(first[0], first[1], T{});
        weights[k][1] = cuda_pair(first[2], first[3], T{});
        weights[k][2] = cuda_pair(first[4], first[5], T{});
        weights[k][3] = cuda_pair(first[6], first[7], T{});
    }
}

__device__ void rescale(const float *old, float *out) {
#pragma unroll
    for (int i = 0; i < WIDTH / 8; ++i) {
        out[i * 4] *= old[0];
        out[i * 4 + 1] *= old[0];
        out[i * 4 + 2] *= old[1];
        out[i * 4 + 3] *= old[1];
    }
}

template <typename T>
__device__ void write_out(const gpu_attention_call &call, const group_of &own,
                          const rows_state &state, const float *out) {
    const cuda_task &job = own.job;
    const float scale = (call.soft_cap > 0 ? 1 : call.scale) * LOG2E;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        float factor;
        const float total = cuda_total(call, state.largest[row] * scale, state.total[row], &factor);
        const int query = job.first_query + own.row + row * 8;
        if (query >= job.tokens) {
            continue;
        }
        const float share = factor / total;
        T *to = gpu_row<T>(call.out,
                           static_cast<int64_t>(job.first_token + query) * call.heads + blockIdx.x);
#pragma unroll
        for (int i = 0; i < WIDTH / 8; ++i) {
            *reinterpret_cast<uint32_t *>(to + i * 8 + 2 * (threadIdx.x % 4)) =
                cuda_pair(out[i * 4 + 2 * row] * share, out[i * 4 + 2 * row + 1] * share, T{});
        }
    }
}

// A tile's scores to weights; whether the sums so far must be scaled, by `old`.
__device__ bool soften(const gpu_attention_call &call, const group_of &own, int first_key,
                       float *scores, rows_state *state, float *old) {
    const int first = own.job.offset + own.job.first_query;
    const float scale = (call.soft_cap > 0 ? 1 : call.scale) * LOG2E;
    if (call.soft_cap > 0) {
        cap(call, scores);
    }
    if (first_key + KEYS - 1 > first ||
        (call.window > 0 && first_key <= first + ROWS - 1 - call.window)) {
        mask(call, own.job, first_key, own.row, scores);
    }
    return weigh(scores, scale, state, old);
}

template <typename T> __device__ void attend(const gpu_attention_call &call, const group_of &own) {
    float out[WIDTH / 2] = {};
    rows_state state = {
        {-INFINITY, -INFINITY},
        {0,         0        }
    };
    // Behind it are keys that the block's other groups see: less than a tile, for which nobody
    // waits to be released.
    const int seen = own.job.offset + own.job.first_query + 64 * (own.number + 1);
    const int end_key = seen < own.job.end_key ? seen : own.job.end_key;
    load_queries<T>(call, own);
    int turn = 0;
    for (int key = own.job.begin_key; key < end_key && key < own.job.end_key; key += KEYS, ++turn) {
        float scores[KEYS / 2];
        uint32_t weights[KEYS / 16][4];
        float old[2];
        const uint32_t keys = cuda_keys_wait(own.keys, turn);
        cuda_group_begin();
        begin_scores<T>(own.queries, keys, scores);
        cuda_group_wait<0>();
        cuda_keys_release(own.keys, turn);
        if (soften(call, own, key, scores, &state, old)) {
            rescale(old, out);
        }
        pair_up<T>(scores, weights);
        const uint32_t values = cuda_keys_wait(own.values, turn);
        cuda_group_begin();
        begin_values<T>(weights, values, out);
        cuda_group_wait<0>();
        cuda_keys_release(own.values, turn);
    }
    write_out<T>(call, own, state, out);
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    prefill_group_kernel(const __grid_constant__ group_call call) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signal_room[CUDA_KEYS_SIGNALS];
    const uint32_t tiles = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t signals = static_cast<uint32_t>(__cvta_generic_to_shared(signal_room));
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    group_of own;
    if (!cuda_find_task(call.all, ROWS, KEYS, &own.job)) {
        return;
    }
    own.number = static_cast<int>(threadIdx.x) / 128;
    own.row = static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
    own.queries = tiles + static_cast<uint32_t>(own.number) * 64 * 128;
    own.keys = cuda_keys_ring{tiles + 2 * QUERIES_PANEL, signals};
    own.values = cuda_keys_ring{own.keys.tiles + CUDA_KEYS_STAGES * CUDA_KEYS_BYTES,
                                signals + CUDA_KEYS_RING_SIGNALS * 8};
    if (threadIdx.x == 0) {
        cuda_keys_init(own.keys, GROUPS * 4);
        cuda_keys_init(own.values, GROUPS * 4);
        cuda_barrier_publish();
    }
    __syncthreads();
    if (own.number == GROUPS) {
        cuda_give_back<BRINGING_REGISTERS>();
        const cuda_keys_source keys = {&call.all, &call.keys, &own.job, own.keys};
        const cuda_keys_source values = {&call.all, &call.values, &own.job, own.values};
        cuda_keys_bring_all(keys, values);
    } else {
        cuda_ask_for<MULTIPLYING_REGISTERS>();
        attend<T>(call.all, own);
    }
}

template <typename T> berth_status start(const gpu_op *op, const group_call &call, int longest) {
    const berth_status has_room = cuda_allow_shared(op, prefill_group_kernel<T>, SHARED_BYTES);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(call.all.heads), gpu_ceil(longest, ROWS),
                                static_cast<unsigned>(call.all.sequences)),
                           dim3(THREADS), SHARED_BYTES};
    return gpu_run(op, "paged_attention's prefill", grid, prefill_group_kernel<T>, call);
}

} // namespace

// Each architecture's code has a constant of its own.
extern "C" int32_t cuda_code_has_groups(void) {
    int has = 0;
    return cudaMemcpyFromSymbol(&has, kernels_have_groups, sizeof has) == cudaSuccess && has;
}

berth_status cuda_prefill_group(const gpu_op *op, const cuda_prefill_call &call,
                                berth_dtype dtype) {
    const gpu_attention_call &all = *call.all;
    group_call with;
    cuda_tiled cache = {all.key_cache, all.blocks * all.block_size,
                        static_cast<int64_t>(all.kv_heads) * all.width, CUDA_KEYS_ROWS,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
    with.all = all;
    bool is_described = cuda_describe_tiles(call.encode, cache, &with.keys);
    cache.data = all.value_cache;
    is_described = is_described && cuda_describe_tiles(call.encode, cache, &with.values);
    if (!is_described) {
        return cuda_prefill(op, all, call.longest, dtype);
    }
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, with, call.longest)
                                     : start<gpu_f16>(op, with, call.longest);
}
