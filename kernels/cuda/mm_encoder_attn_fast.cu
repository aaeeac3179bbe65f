// SPDX-License-Identifier: Apache-2.0
// mm_encoder_attn on CUDA's tensor cores: 16-bit types, heads of up to 128 elements, as the prefill
// of paged_attention does it (attention/prefill_sums.h). A block has 128 queries of one segment and
// one head; a narrower head has zeros behind it in shared memory.
#include <cuda/attention/prefill_sums.h>
#include <cuda/shared.h>
#include <gpu/encoder.h>

namespace {

constexpr int STAGES = 2;
constexpr int64_t MOST_SEGMENTS = 65535; // of a grid's third dimension

enum { QUERY };

// A block's part of the operands. Strides in elements.
template <typename T> struct rows_of {
    const T *first; // of the segment, with the head
    int64_t gap;
    int end; // tokens of the segment
    int width;

    __device__ rows_of(const gpu_encoder_call &all, const gpu_encoder_field &field,
                       const gpu_encoder_span &segment, int head)
        : first(gpu_encoder_at<const T>(field, segment.begin, head)), gap(field.inner_gap),
          end(segment.end - segment.begin), width(all.width) {
    }
    // COUNT rows from `row` on; zeros beyond the segment and the width.
    template <int WIDTH, int COUNT> __device__ void load(int row, uint32_t to) const {
        constexpr int PIECES = WIDTH / 8;
        const int piece = threadIdx.x % PIECES;
#pragma unroll
        for (int i = 0; i < COUNT * PIECES / (WARPS * 32); ++i) {
            const int line = threadIdx.x / PIECES + i * (WARPS * 32 / PIECES);
            const bool is_there = row + line < end && piece * 8 < width;
            cuda_copy_16(to + place_of<WIDTH>(line, piece),
                         first + (is_there ? (row + line) * gap + piece * 8 : 0), is_there);
        }
    }
};

// Keys beyond the segment at minus infinity.
__device__ void mask_end(int left, float (*scores)[4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[n][i] = n * 8 + 2 * (lane % 4) + i % 2 < left ? scores[n][i] : -INFINITY;
        }
    }
}

// The scores of a tile, of whose keys so many are there, to weights.
template <int WIDTH>
__device__ void soften_tile(float scale, int left, float (*scores)[KEYS / 8][4],
                            rows_sum<WIDTH> *sum) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        if (left < KEYS) {
            mask_end(left, scores[m]);
        }
        weigh<WIDTH>(scores[m], m, scale * LOG2E, sum);
    }
}

template <typename T, int WIDTH>
__device__ void write_rows(const gpu_encoder_call &all, const gpu_encoder_span &segment,
                           int first_query, const rows_sum<WIDTH> &sum) {
    const int first = first_query + threadIdx.x / 32 * WARP_ROWS + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int m = i / 2;
        const int row = i % 2;
        const int token = segment.begin + first + m * 16 + row * 8;
        float total = sum.total[m][row] + gpu_shuffle_xor(sum.total[m][row], 1);
        total += gpu_shuffle_xor(total, 2);
        if (token >= segment.end) {
            continue;
        }
        T *to = gpu_encoder_at<T>(all.out, token, static_cast<int>(blockIdx.x));
#pragma unroll
        for (int n = 0; n < WIDTH / 8; ++n) {
            if (n * 8 < all.width) {
                *reinterpret_cast<uint32_t *>(to + n * 8 + 2 * (threadIdx.x % 4)) = cuda_pair(
                    sum.out[m][n][2 * row] / total, sum.out[m][n][2 * row + 1] / total, T{});
            }
        }
    }
}

template <int WIDTH> constexpr uint32_t SHARED_BYTES = (ROWS + 2 * STAGES * KEYS) * WIDTH * 2;

// blockIdx.x: the head; blockIdx.y: which queries of the segment blockIdx.z.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(WARPS * 32) encoder_kernel(gpu_encoder_call all) {
    extern __shared__ __align__(128) unsigned char shared[];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const gpu_encoder_span segment = gpu_encoder_segment(all, static_cast<int>(blockIdx.z));
    const int first_query = static_cast<int>(blockIdx.y) * ROWS;
    const int end = segment.end - segment.begin;
    if (first_query >= end) {
        return;
    }
    constexpr uint32_t TILE_BYTES = KEYS * WIDTH * 2;
    const int head = static_cast<int>(blockIdx.x);
    const int kv_head = head / (all.heads / all.kv_heads);
    const uint32_t queries = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t keys = queries + ROWS * WIDTH * 2;
    const uint32_t values = keys + STAGES * TILE_BYTES;
    const rows_of<T> key_rows(all, all.key, segment, kv_head);
    const rows_of<T> value_rows(all, all.value, segment, kv_head);
    rows_of<T>(all, all.query, segment, head).template load<WIDTH, ROWS>(first_query, queries);
    key_rows.template load<WIDTH, KEYS>(0, keys);
    cuda_end_group();
    value_rows.template load<WIDTH, KEYS>(0, values);
    cuda_end_group();
    rows_sum<WIDTH> sum;
    int stage = 0;
    for (int first = 0; first < end; first += KEYS, stage ^= 1) {
        const int next = first + KEYS;
        if (next < end) {
            key_rows.template load<WIDTH, KEYS>(next, keys + (stage ^ 1) * TILE_BYTES);
        }
        cuda_end_group();
        cuda_wait_groups<2>(); // this tile's keys
        __syncthreads();
        float scores[2][KEYS / 8][4] = {};
        score<T, WIDTH>(queries, keys + stage * TILE_BYTES, scores);
        soften_tile<WIDTH>(all.scale, end - first, scores, &sum);
        if (next < end) {
            value_rows.template load<WIDTH, KEYS>(next, values + (stage ^ 1) * TILE_BYTES);
        }
        cuda_end_group();
        cuda_wait_groups<2>(); // this tile's values
        __syncthreads();
        add_values<T, WIDTH>(values + stage * TILE_BYTES, scores, &sum);
    }
    write_rows<T, WIDTH>(all, segment, first_query, sum);
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename T, int WIDTH>
berth_status start(const gpu_op *op, const gpu_encoder_call &call) {
    constexpr uint32_t BYTES = SHARED_BYTES<WIDTH>;
    const berth_status has_room = cuda_allow_shared(op, encoder_kernel<T, WIDTH>, BYTES);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    const int longest = call.starts ? call.tokens : call.length;
    const gpu_grid grid = {dim3(static_cast<unsigned>(call.heads), gpu_ceil(longest, ROWS),
                                static_cast<unsigned>(call.segments)),
                           dim3(WARPS * 32), BYTES};
    return gpu_run(op, "attention of an encoder", grid, encoder_kernel<T, WIDTH>, call);
}

template <typename T> berth_status start(const gpu_op *op, const gpu_encoder_call &call) {
    return call.width > 64 ? start<T, 128>(op, call) : start<T, 64>(op, call);
}

// Whether every piece of 8 elements lies at a multiple of 16 bytes.
bool is_aligned(const gpu_encoder_field &field) {
    const int64_t gaps = field.outer_gap | field.middle_gap | field.inner_gap | field.head_gap;
    return gaps % 8 == 0 && reinterpret_cast<uintptr_t>(field.data) % 16 == 0;
}

berth_status attend(const gpu_op *op, gpu_encoder_call call, berth_dtype dtype) {
    const bool is_fast = call.tokens > 0 && call.segments > 0 && call.segments <= MOST_SEGMENTS &&
                         is_aligned(call.query) && is_aligned(call.key) && is_aligned(call.value) &&
                         is_aligned(call.out);
    return !is_fast                    ? gpu_encoder_run(op, call, dtype)
           : dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, call)
                                       : start<gpu_f16>(op, call);
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_dtype dtype = site->inputs[QUERY]->dtype;
    const int64_t width = berth_site_attribute(site, "head_size")->i64;
    const berth_attribute *scale = berth_site_attribute(site, "scale");
    if (dtype != BERTH_DTYPE_BF16 && dtype != BERTH_DTYPE_F16) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only bf16 and f16");
    }
    if (width % 8 != 0 || width > 128) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "only heads of 8, 16, 24 … 128 elements");
    }
    return scale->kind == BERTH_ATTRIBUTE_NONE || scale->f64 > 0
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only a scale above 0");
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_encoder_create(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<gpu_encoder *>(*out_self)->attend = attend;
    }
    return status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mm_encoder_attn_fast;
const berth_op_impl berth_kernel_mm_encoder_attn_fast = {
    .size = sizeof(berth_op_impl),
    .op = "mm_encoder_attn",
    .name = "cuda.mm_encoder_attn",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = gpu_encoder_forward,
    .destroy = gpu_destroy,
};
}
