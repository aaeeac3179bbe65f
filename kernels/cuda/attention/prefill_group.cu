// SPDX-License-Identifier: Apache-2.0
// Attention of several new tokens a sequence with heads of 128 on Hopper: a block has 128 queries
// and one head; two groups of four warps have 64 queries each and share tiles of 128 keys. While
// the tensor cores weigh one tile's values, the next tile's scores are on their way through them,
// and its softmax runs beside both.
#include <cuda/attention/prefill.h>
#include <cuda/wgmma.h>

#include <math.h>

extern "C" int32_t cuda_code_has_groups(void);

namespace {

constexpr int THREADS = 256;
constexpr int ROWS = 128; // queries of a block
constexpr int KEYS = 128; // of a tile
constexpr int WIDTH = 128;
constexpr int STAGES = 2;
constexpr int PIECES = WIDTH / 8;
constexpr uint32_t PANEL_BYTES = 128 * 128; // 64 elements of 128 rows
constexpr uint32_t TILE_BYTES = 2 * PANEL_BYTES;
constexpr uint32_t SHARED_BYTES = (1 + 2 * STAGES) * TILE_BYTES;

__device__ int kernels_have_groups = CUDA_HAS_WGMMA;

__device__ uint32_t place_of(int row, int piece) {
    return static_cast<uint32_t>(piece / 8) * PANEL_BYTES + cuda_panel_place(row, piece % 8);
}

template <typename T>
__device__ void load_queries(const gpu_attention_call &call, const cuda_task &job, uint32_t to) {
    const int piece = threadIdx.x % PIECES;
#pragma unroll
    for (int i = 0; i < ROWS * PIECES / THREADS; ++i) {
        const int row = threadIdx.x / PIECES + i * (THREADS / PIECES);
        const bool is_there = job.first_query + row < job.tokens;
        const int64_t token = job.first_token + (is_there ? job.first_query + row : 0);
        const T *from = gpu_row<const T>(call.query, token * call.heads + blockIdx.x);
        cuda_copy_16(to + place_of(row, piece), from + piece * 8, is_there);
    }
}

// A tile of keys or values; rows that no query of the block sees are zero, and are not read.
template <typename T>
__device__ void load_tile(const gpu_attention_call &call, const cuda_task &job, const T *cache,
                          int first, uint32_t to) {
    const int32_t *blocks = call.block_table + job.sequence * call.table_stride;
    const int piece = threadIdx.x % PIECES;
    const int64_t gap = static_cast<int64_t>(call.kv_heads) * WIDTH;
#pragma unroll
    for (int i = 0; i < KEYS * PIECES / THREADS; ++i) {
        const int row = threadIdx.x / PIECES + i * (THREADS / PIECES);
        const bool is_there = first + row >= job.first_key && first + row < job.end_key;
        const int key = is_there ? first + row : job.end_key - 1;
        cuda_copy_16(to + place_of(row, piece),
                     cache + cuda_slot(call, blocks, key) * gap + piece * 8, is_there);
    }
}

// A warp's 16 queries: of each lane's two rows the largest score and the total.
struct rows_state {
    float largest[2];
    float total[2];
};

// Scores [16][4] of 64 queries for a tile of keys begin.
template <typename T> __device__ void begin_scores(uint32_t queries, uint32_t keys, float *scores) {
#pragma unroll
    for (int d = 0; d < WIDTH / 16; ++d) {
        const uint32_t at = static_cast<uint32_t>(d / 4) * PANEL_BYTES + d % 4 * 32;
        cuda_group_rows<T>(scores, cuda_matrix(queries + at, 0), cuda_matrix(keys + at, 0), d > 0);
    }
    cuda_group_commit();
}

// The weighted values of a tile begin to be added.
template <typename T>
__device__ void begin_values(const uint32_t (*weights)[4], uint32_t values, float *out) {
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
        cuda_group_columns<T>(out, weights[k], cuda_matrix(values + k * 16 * 128, PANEL_BYTES));
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

// Scores to weights; `old` is what the sums so far count for.
__device__ void weigh(float *scores, float scale, rows_state *state, float *old) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
            most = fmaxf(most, fmaxf(scores[n * 4 + 2 * row], scores[n * 4 + 2 * row + 1]));
        }
        const float largest = fmaxf(state->largest[row], cuda_row_max(most));
        const float base = largest == -INFINITY ? 0 : largest * scale;
        float total = 0;
        old[row] = cuda_exp2(state->largest[row] * scale - base);
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float *score = &scores[n * 4 + 2 * row + i];
                *score = cuda_exp2(fmaf(*score, scale, -base));
                total += *score;
            }
        }
        state->total[row] = state->total[row] * old[row] + total;
        state->largest[row] = largest;
    }
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
__device__ void write_out(const gpu_attention_call &call, const cuda_task &job, float scale,
                          int first_row, const rows_state &state, const float *out) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        float factor;
        const float total = cuda_total(call, state.largest[row] * scale, state.total[row], &factor);
        const int query = job.first_query + first_row + row * 8;
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

template <typename T>
__device__ void soften(const gpu_attention_call &call, const cuda_task &job, int first_key, int row,
                       float scale, float *scores, rows_state *state, float *old) {
    const int first = job.offset + job.first_query;
    if (call.soft_cap > 0) {
        cap(call, scores);
    }
    if (first_key + KEYS - 1 > first ||
        (call.window > 0 && first_key <= first + ROWS - 1 - call.window)) {
        mask(call, job, first_key, row, scores);
    }
    weigh(scores, scale, state, old);
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1) prefill_group_kernel(gpu_attention_call call) {
    extern __shared__ __align__(1024) unsigned char shared[];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    cuda_task job;
    if (!cuda_find_task(call, ROWS, KEYS, &job)) {
        return;
    }
    const uint32_t queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t keys = queries + TILE_BYTES;
    const uint32_t values = keys + STAGES * TILE_BYTES;
    const uint32_t own_queries = queries + threadIdx.x / 128 * 64 * 128;
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const int64_t own = static_cast<int64_t>(blockIdx.x / (call.heads / call.kv_heads)) * WIDTH;
    const T *key_cache = static_cast<const T *>(call.key_cache) + own;
    const T *value_cache = static_cast<const T *>(call.value_cache) + own;
    const float scale = (call.soft_cap > 0 ? 1 : call.scale) * LOG2E;
    load_queries<T>(call, job, queries);
    load_tile<T>(call, job, key_cache, job.begin_key, keys);
    cuda_end_group();
    load_tile<T>(call, job, value_cache, job.begin_key, values);
    if (job.begin_key + KEYS < job.end_key) {
        load_tile<T>(call, job, key_cache, job.begin_key + KEYS, keys + TILE_BYTES);
    }
    cuda_end_group();
    float out[WIDTH / 2] = {};
    float scores[KEYS / 2];
    uint32_t weights[KEYS / 16][4];
    float old[2];
    rows_state state = {
        {-INFINITY, -INFINITY},
        {0,         0        }
    };
    cuda_wait_groups<1>();
    cuda_publish_shared();
    __syncthreads();
    cuda_group_begin();
    begin_scores<T>(own_queries, keys, scores);
    cuda_group_wait<0>();
    soften<T>(call, job, job.begin_key, row, scale, scores, &state, old);
    pair_up<T>(scores, weights);
    int stage = 0;
    int next = job.begin_key + KEYS;
    for (; next < job.end_key; next += KEYS, stage ^= 1) {
        const uint32_t other = static_cast<uint32_t>(stage ^ 1) * TILE_BYTES;
        cuda_wait_groups<0>(); // this tile's values and the next one's keys
        cuda_publish_shared();
        __syncthreads();
        cuda_group_begin();
        begin_scores<T>(own_queries, keys + other, scores);
        begin_values<T>(weights, values + stage * TILE_BYTES, out);
        load_tile<T>(call, job, value_cache, next, values + other);
        if (next + KEYS < job.end_key) {
            load_tile<T>(call, job, key_cache, next + KEYS, keys + stage * TILE_BYTES);
        }
        cuda_end_group();
        cuda_group_wait<1>();
        soften<T>(call, job, next, row, scale, scores, &state, old);
        cuda_group_wait<0>();
        rescale(old, out);
        pair_up<T>(scores, weights);
    }
    cuda_wait_groups<0>();
    cuda_publish_shared();
    __syncthreads();
    cuda_group_begin();
    begin_values<T>(weights, values + stage * TILE_BYTES, out);
    cuda_group_wait<0>();
    write_out<T>(call, job, scale, row, state, out);
}

template <typename T>
berth_status start(const gpu_op *op, const gpu_attention_call &call, int longest) {
    const cudaError_t error = cudaFuncSetAttribute(
        prefill_group_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (error != cudaSuccess) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                 SHARED_BYTES, cudaGetErrorString(error));
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(call.heads), gpu_ceil(longest, ROWS),
                                static_cast<unsigned>(call.sequences)),
                           dim3(THREADS), SHARED_BYTES};
    return gpu_run(op, "paged_attention's prefill", grid, prefill_group_kernel<T>, call);
}

} // namespace

// Each architecture's code has a constant of its own.
extern "C" int32_t cuda_code_has_groups(void) {
    int has = 0;
    return cudaMemcpyFromSymbol(&has, kernels_have_groups, sizeof has) == cudaSuccess && has;
}

berth_status cuda_prefill_group(const gpu_op *op, const gpu_attention_call &call, int longest,
                                berth_dtype dtype) {
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, call, longest)
                                     : start<gpu_f16>(op, call, longest);
}
