// SPDX-License-Identifier: Apache-2.0
// Attention of several new tokens a sequence: a block has 128 of them and one head, and goes over
// the keys in tiles of 64, the next of which is on its way while the tensor cores work on this one.
#include <cuda/attention/prefill_sums.h>

namespace {

constexpr int STAGES = 2;

// A tile of keys or values from the cache; rows that no query of the block sees are zero, and their
// blocks, which may be gone, are not read.
template <typename T, int WIDTH>
__device__ void load_tile(const gpu_attention_call &call, const cuda_task &job, const T *cache,
                          int first, uint32_t to) {
    constexpr int PIECES = WIDTH / 8;
    const int32_t *blocks = call.block_table + job.sequence * call.table_stride;
    const int piece = threadIdx.x % PIECES;
    const int64_t gap = static_cast<int64_t>(call.kv_heads) * WIDTH;
#pragma unroll
    for (int i = 0; i < KEYS * PIECES / (WARPS * 32); ++i) {
        const int row = threadIdx.x / PIECES + i * (WARPS * 32 / PIECES);
        const int wanted = first + row;
        const bool is_there = wanted >= job.first_key && wanted < job.end_key;
        const int key = is_there ? wanted : job.end_key - 1;
        cuda_copy_16(to + place_of<WIDTH>(row, piece),
                     cache + cuda_slot(call, blocks, key) * gap + piece * 8, is_there);
    }
}

template <int WIDTH> constexpr uint32_t SHARED_BYTES = (ROWS + 2 * STAGES * KEYS) * WIDTH * 2;

template <typename T, int WIDTH>
__global__ void __launch_bounds__(WARPS * 32) prefill_kernel(gpu_attention_call call) {
    extern __shared__ __align__(128) unsigned char shared[];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    cuda_task job;
    if (!cuda_find_task(call, ROWS, KEYS, &job)) {
        return;
    }
    constexpr uint32_t TILE_BYTES = KEYS * WIDTH * 2;
    const uint32_t queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t keys = queries + ROWS * WIDTH * 2;
    const uint32_t values = keys + STAGES * TILE_BYTES;
    const int64_t own = static_cast<int64_t>(blockIdx.x / (call.heads / call.kv_heads)) * WIDTH;
    const T *key_cache = static_cast<const T *>(call.key_cache) + own;
    const T *value_cache = static_cast<const T *>(call.value_cache) + own;
    load_queries<T, WIDTH>(call, job, queries);
    load_tile<T, WIDTH>(call, job, key_cache, job.begin_key, keys);
    cuda_end_group();
    load_tile<T, WIDTH>(call, job, value_cache, job.begin_key, values);
    cuda_end_group();
    rows_sum<WIDTH> sum;
    int stage = 0;
    for (int first = job.begin_key; first < job.end_key; first += KEYS, stage ^= 1) {
        const int next = first + KEYS;
        if (next < job.end_key) {
            load_tile<T, WIDTH>(call, job, key_cache, next, keys + (stage ^ 1) * TILE_BYTES);
        }
        cuda_end_group();
        cuda_wait_groups<2>(); // this tile's keys
        __syncthreads();
        float scores[2][KEYS / 8][4] = {};
        score<T, WIDTH>(queries, keys + stage * TILE_BYTES, scores);
        soften<WIDTH>(call, job, first, scores, &sum);
        if (next < job.end_key) {
            load_tile<T, WIDTH>(call, job, value_cache, next, values + (stage ^ 1) * TILE_BYTES);
        }
        cuda_end_group();
        cuda_wait_groups<2>(); // this tile's values
        __syncthreads();
        add_values<T, WIDTH>(values + stage * TILE_BYTES, scores, &sum);
    }
    write_out<T, WIDTH>(call, job, sum);
}

template <typename T, int WIDTH>
berth_status start(const gpu_op *op, const gpu_attention_call &call, int longest) {
    return start_prefill(op, call, longest, prefill_kernel<T, WIDTH>, SHARED_BYTES<WIDTH>);
}

template <typename T>
berth_status start(const gpu_op *op, const gpu_attention_call &call, int longest) {
    return call.width == 128 ? start<T, 128>(op, call, longest) : start<T, 64>(op, call, longest);
}

} // namespace

berth_status cuda_prefill(const gpu_op *op, const gpu_attention_call &call, int longest,
                          berth_dtype dtype) {
    if (call.cache_dtype == BERTH_DTYPE_F8_E4M3FN) {
        return cuda_prefill_codes(op, call, longest, dtype);
    }
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, call, longest)
                                     : start<gpu_f16>(op, call, longest);
}
