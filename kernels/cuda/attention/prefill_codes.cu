// SPDX-License-Identifier: Apache-2.0
// Attention of several new tokens a sequence over caches of f8_e4m3fn: as prefill.cu, but a tile of
// codes is on its way while the tensor cores work on the one before it, and becomes a tile of
// numbers when it has come. A thread widens the codes that it has copied itself.
#include <cuda/attention/prefill_sums.h>
#include <cuda/codes_to_pairs.h>

namespace {

// A thread's 16-byte pieces of a tile of codes.
template <int WIDTH> constexpr int MINE = KEYS *WIDTH / 16 / (WARPS * 32);

// The rows of a tile: where they come from, the room for their codes, and their place as numbers.
struct codes_tile {
    const uint8_t *cache;
    uint32_t codes;
    uint32_t numbers;
};

__device__ uint32_t codes_of(const codes_tile &tile, int i) {
    return tile.codes + static_cast<uint32_t>(i * WARPS * 32 + threadIdx.x) * 16;
}

// Rows that no query of the block sees are zero, and their blocks, which may be gone, are not read.
template <int WIDTH>
__device__ void bring(const gpu_attention_call &call, const cuda_task &job, const codes_tile &tile,
                      int first) {
    constexpr int PIECES = WIDTH / 16;
    const int32_t *blocks = call.block_table + job.sequence * call.table_stride;
    const int64_t gap = static_cast<int64_t>(call.kv_heads) * WIDTH;
#pragma unroll
    for (int i = 0; i < MINE<WIDTH> && first < job.end_key; ++i) {
        const int at = i * WARPS * 32 + static_cast<int>(threadIdx.x);
        const int wanted = first + at / PIECES;
        const bool is_there = wanted >= job.first_key && wanted < job.end_key;
        const int key = is_there ? wanted : job.end_key - 1;
        cuda_copy_16(codes_of(tile, i),
                     tile.cache + cuda_slot(call, blocks, key) * gap + at % PIECES * 16, is_there);
    }
    cuda_end_group();
}

template <typename T, int WIDTH> __device__ void widen(const codes_tile &tile) {
    constexpr int PIECES = WIDTH / 16;
#pragma unroll
    for (int i = 0; i < MINE<WIDTH>; ++i) {
        const int at = i * WARPS * 32 + static_cast<int>(threadIdx.x);
        const uint4 codes = cuda_load_shared(codes_of(tile, i));
        const int row = at / PIECES;
        const int piece = at % PIECES * 2;
        cuda_store_shared(tile.numbers + place_of<WIDTH>(row, piece),
                          cuda_codes_to_pairs<T>(uint2{codes.x, codes.y}));
        cuda_store_shared(tile.numbers + place_of<WIDTH>(row, piece + 1),
                          cuda_codes_to_pairs<T>(uint2{codes.z, codes.w}));
    }
}

template <int WIDTH> constexpr uint32_t NUMBERS_BYTES = KEYS *WIDTH * 2;
// Queries, then numbers of keys and values, then codes of both.
template <int WIDTH> constexpr uint32_t SHARED_BYTES = ROWS *WIDTH * 2 + 3 * NUMBERS_BYTES<WIDTH>;

template <typename T, int WIDTH>
__global__ void __launch_bounds__(WARPS * 32) prefill_codes_kernel(gpu_attention_call call) {
    extern __shared__ __align__(128) unsigned char shared[];
    gpu_let_next_begin();
    const uint32_t queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    cuda_task job;
    gpu_wait_for_inputs();
    if (!cuda_find_task(call, ROWS, KEYS, &job)) {
        return;
    }
    const uint32_t numbers = queries + ROWS * WIDTH * 2;
    const uint32_t codes = numbers + 2 * NUMBERS_BYTES<WIDTH>;
    const int64_t own = static_cast<int64_t>(blockIdx.x / (call.heads / call.kv_heads)) * WIDTH;
    const codes_tile keys = {static_cast<const uint8_t *>(call.key_cache) + own, codes, numbers};
    const codes_tile values = {static_cast<const uint8_t *>(call.value_cache) + own,
                               codes + KEYS * WIDTH, numbers + NUMBERS_BYTES<WIDTH>};
    load_queries<T, WIDTH>(call, job, queries);
    bring<WIDTH>(call, job, keys, job.begin_key);
    bring<WIDTH>(call, job, values, job.begin_key);
    rows_sum<WIDTH> sum;
    for (int first = job.begin_key; first < job.end_key; first += KEYS) {
        cuda_wait_groups<1>(); // this tile's keys
        widen<T, WIDTH>(keys);
        bring<WIDTH>(call, job, keys, first + KEYS);
        __syncthreads(); // nobody adds values of the tile before any more, either
        float scores[2][KEYS / 8][4] = {};
        score<T, WIDTH>(queries, keys.numbers, scores);
        soften<WIDTH>(call, job, first, scores, &sum);
        cuda_wait_groups<1>(); // this tile's values
        widen<T, WIDTH>(values);
        bring<WIDTH>(call, job, values, first + KEYS);
        __syncthreads(); // nobody reads this tile's keys any more, either
        add_values<T, WIDTH>(values.numbers, scores, &sum);
    }
    write_out<T, WIDTH>(call, job, sum);
}

template <typename T, int WIDTH>
berth_status start(const gpu_op *op, const gpu_attention_call &call, int longest) {
    return start_prefill(op, call, longest, prefill_codes_kernel<T, WIDTH>, SHARED_BYTES<WIDTH>);
}

template <typename T>
berth_status start(const gpu_op *op, const gpu_attention_call &call, int longest) {
    return call.width == 128 ? start<T, 128>(op, call, longest) : start<T, 64>(op, call, longest);
}

} // namespace

berth_status cuda_prefill_codes(const gpu_op *op, const gpu_attention_call &call, int longest,
                                berth_dtype dtype) {
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, call, longest)
                                     : start<gpu_f16>(op, call, longest);
}
