// SPDX-License-Identifier: Apache-2.0
// mm_encoder_attn on a GPU, and the kernel of all attention of encoders (encoder.h): a block has
// the queries of some neighbouring tokens and one head, each of its warps a few of them; keys, then
// values come through shared memory 32 at a time. A lane has one key's scores for all queries of
// its warp, afterwards some columns of their weighted sums. All in f32, with a running softmax.
#include "encoder.h"

#include <math.h>

namespace {

constexpr int WARPS = GPU_ENCODER_THREADS / 32;
constexpr int KEYS = 32;     // at once in shared memory
constexpr int FEW_LANES = 4; // columns of a lane up to which a warp has MANY queries
constexpr int MANY = 4;

enum { QUERY, KEY, VALUE, CU_SEQLENS };

// ---- rows in shared memory ----------------------------------------------------------------------

// Floats from row to row: an odd number of 16 bytes, so that the same place of neighbouring rows
// lies in different banks.
__host__ __device__ constexpr int stride_of(int width) {
    return ((width + 3) / 4 | 1) * 4;
}

// `count` tokens from `first` on, a row each; zeros for those from `end` on and beyond the width.
template <typename T>
__device__ void load_rows(const gpu_encoder_call &all, const gpu_encoder_field &from, int head,
                          int first, int end, int count, float *to) {
    const int packs = (all.width + 3) / 4;
    const int stride = stride_of(all.width);
    for (int at = threadIdx.x; at < count * packs; at += GPU_ENCODER_THREADS) {
        const int row = at / packs;
        const int i = (at - row * packs) * 4;
        gpu_pack<float, 4> out = {};
        if (first + row < end) {
            const T *x = gpu_encoder_at<const T>(from, first + row, head);
            if (all.is_wide) {
                const gpu_pack<T, 4> pack = gpu_load<T, 4>(x, i);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    out.at[j] = gpu_float(pack.at[j]);
                }
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    out.at[j] = i + j < all.width ? gpu_float(x[i + j]) : 0.0f;
                }
            }
        }
        gpu_store<float, 4>(to, row * stride + i, out);
    }
}

// ---- what a token sees --------------------------------------------------------------------------

// The segment of a token; empty where it has none.
__device__ gpu_encoder_span segment_of(const gpu_encoder_call &all, int token) {
    int low = 0;
    int high = all.segments - 1;
    if (!all.starts) {
        return gpu_encoder_segment(all, token / all.length);
    }
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (gpu_integer(all.starts, all.starts_dtype, middle) <= token) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const gpu_encoder_span own = gpu_encoder_segment(all, low);
    return token < own.begin || token >= own.end ? gpu_encoder_span{token, token} : own;
}

__device__ gpu_encoder_span seen_by(const gpu_encoder_call &all, int token) {
    gpu_encoder_span seen = segment_of(all, token);
    if (all.window > 0) {
        seen.begin = max(seen.begin, token - all.window + 1);
        seen.end = static_cast<int>(
            min(static_cast<int64_t>(seen.end), static_cast<int64_t>(token) + all.window));
    }
    return seen;
}

// What an image's token adds to the score of a key of it.
__device__ float bias_of(const gpu_encoder_call &all, const float *biases, int key) {
    const int place = key % all.length;
    return biases[place / all.columns] + biases[all.rows + place % all.columns];
}

__device__ float largest_of_warp(float value) {
    for (int mask = 16; mask > 0; mask /= 2) {
        value = fmaxf(value, gpu_shuffle_xor(value, mask));
    }
    return value;
}

// ---- a warp -------------------------------------------------------------------------------------

// Q queries: their running softmaxes, and PER columns a lane of the sums. What the lane's own keys
// weigh is added up apart from the other lanes' until the end.
template <int PER, int Q> struct queries {
    int first; // token
    gpu_encoder_span seen[Q];
    float largest[Q];
    float total[Q];
    float sums[Q][PER];

    __device__ void begin(const gpu_encoder_call &all, int token) {
        first = token;
#pragma unroll
        for (int q = 0; q < Q; ++q) {
            seen[q] = token + q < all.tokens ? seen_by(all, token + q) : gpu_encoder_span{0, 0};
            largest[q] = -INFINITY;
            total[q] = 0;
#pragma unroll
            for (int p = 0; p < PER; ++p) {
                sums[q][p] = 0;
            }
        }
    }
    // Products of all queries with the lane's key.
    __device__ void multiply(int width, const float *rows, const float *key, float *dots) const {
        const int stride = stride_of(width);
        for (int i = 0; i < width; i += 4) {
            const gpu_pack<float, 4> k = gpu_load<float, 4>(key, i);
#pragma unroll
            for (int q = 0; q < Q; ++q) {
                const gpu_pack<float, 4> x = gpu_load<float, 4>(rows, q * stride + i);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    dots[q] += x.at[j] * k.at[j];
                }
            }
        }
    }
    // Takes the lane's key in; the key's weights are for the lanes that add values up.
    __device__ void weigh(const gpu_encoder_call &all, int head, int key, const float *dots,
                          gpu_pack<float, Q> *out_weights) {
#pragma unroll
        for (int q = 0; q < Q; ++q) {
            const bool is_seen = key >= seen[q].begin && key < seen[q].end;
            float score = -INFINITY;
            if (is_seen) {
                const int64_t row = static_cast<int64_t>(first + q) * all.heads + head;
                score = dots[q] * all.scale;
                score +=
                    all.bias ? bias_of(all, all.bias + row * (all.rows + all.columns), key) : 0.0f;
            }
            const float next = fmaxf(largest[q], largest_of_warp(score));
            const float old = largest[q] == -INFINITY ? 0.0f : expf(largest[q] - next);
            const float weight = score == -INFINITY ? 0.0f : expf(score - next);
            largest[q] = next;
            total[q] = total[q] * old + weight;
            out_weights->at[q] = weight;
#pragma unroll
            for (int p = 0; p < PER; ++p) {
                sums[q][p] *= old;
            }
        }
    }
    // IS_CUT: a query does not see some of the keys. Why it matters: a weight of 0 does not hide
    // what another segment has, if it is not finite.
    template <bool IS_CUT>
    __device__ void add(int width, int count, const gpu_pack<float, Q> *weights,
                        const float *values) {
        const int stride = stride_of(width);
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 4
        for (int j = 0; j < count; ++j) {
            const gpu_pack<float, Q> weight = weights[j];
#pragma unroll
            for (int p = 0; p < PER; ++p) {
                const int i = lane + 32 * p;
                const float value = i < width ? values[j * stride + i] : 0.0f;
#pragma unroll
                for (int q = 0; q < Q; ++q) {
                    sums[q][p] += IS_CUT && weight.at[q] == 0 ? 0.0f : weight.at[q] * value;
                }
            }
        }
    }
    // Tokens of no segment are left as they are.
    template <typename T> __device__ void store(const gpu_encoder_call &all, int head) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int q = 0; q < Q; ++q) {
            const float sum = gpu_warp_sum(total[q]);
            if (seen[q].begin >= seen[q].end) {
                continue;
            }
            T *to = gpu_encoder_at<T>(all.out, first + q, head);
#pragma unroll
            for (int p = 0; p < PER; ++p) {
                if (lane + 32 * p < all.width) {
                    to[lane + 32 * p] = gpu_round<T>(sums[q][p] / sum);
                }
            }
        }
    }
};

// ---- a block ------------------------------------------------------------------------------------

// Floats of shared memory: queries, a tile of keys or values, the weights of a tile.
constexpr int room_of(int width, int queries) {
    return (WARPS * queries + KEYS) * stride_of(width) + WARPS * KEYS * queries;
}

// blockIdx.x: which tokens; blockIdx.y: the head.
template <typename T, int PER, int Q>
__global__ void __launch_bounds__(GPU_ENCODER_THREADS) encoder_kernel(gpu_encoder_call all) {
    extern __shared__ gpu_pack<float, 4> gpu_encoder_room[];
    const int stride = stride_of(all.width);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int head = static_cast<int>(blockIdx.y);
    const int kv_head = head / (all.heads / all.kv_heads);
    const int first = static_cast<int>(blockIdx.x) * WARPS * Q;
    const int last = min(first + WARPS * Q, all.tokens) - 1;
    float *rows = gpu_encoder_room->at;
    float *tile = rows + WARPS * Q * stride;
    gpu_pack<float, Q> *weights =
        reinterpret_cast<gpu_pack<float, Q> *>(tile + KEYS * stride) + warp * KEYS;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    queries<PER, Q> mine;
    mine.begin(all, first + warp * Q);
    const gpu_encoder_span low = seen_by(all, first);
    const gpu_encoder_span high = seen_by(all, last);
    const int end = high.end;
    load_rows<T>(all, all.query, head, first, all.tokens, WARPS * Q, rows);
    for (int key = low.begin; key < end; key += KEYS) {
        float dots[Q] = {};
        load_rows<T>(all, all.key, kv_head, key, end, KEYS, tile);
        __syncthreads();
        mine.multiply(all.width, rows + warp * Q * stride, tile + lane * stride, dots);
        mine.weigh(all, head, key + lane, dots, weights + lane);
        __syncthreads();
        load_rows<T>(all, all.value, kv_head, key, end, KEYS, tile);
        __syncthreads();
        if (key < high.begin || key + KEYS > low.end) {
            mine.template add<true>(all.width, min(KEYS, end - key), weights, tile);
        } else {
            mine.template add<false>(all.width, KEYS, weights, tile);
        }
        __syncthreads();
    }
    mine.template store<T>(all, head);
}

template <typename T, int PER, int Q>
berth_status start(const gpu_op *op, const gpu_encoder_call &call) {
    const gpu_grid grid = {
        dim3(gpu_ceil(call.tokens, WARPS * Q), static_cast<unsigned>(call.heads)),
        dim3(GPU_ENCODER_THREADS), static_cast<uint32_t>(room_of(call.width, Q) * sizeof(float))};
    return gpu_run(op, "attention of an encoder", grid, encoder_kernel<T, PER, Q>, call);
}

template <typename T> berth_status start_width(const gpu_op *op, const gpu_encoder_call &call) {
    static_assert(room_of(32 * FEW_LANES, MANY) <= 12288 && room_of(GPU_ENCODER_WIDTH, 1) <= 12288,
                  "shared memory of 48 KiB");
    switch ((call.width + 31) / 32) {
    case 1:
        return start<T, 1, MANY>(op, call);
    case 2:
        return start<T, 2, MANY>(op, call);
    case 3:
        return start<T, 3, MANY>(op, call);
    case FEW_LANES:
        return start<T, FEW_LANES, MANY>(op, call);
    default:
        return start<T, GPU_ENCODER_WIDTH / 32, 1>(op, call);
    }
}

// Whether four elements of every head of a field lie at a multiple of their size.
bool is_aligned(const gpu_encoder_field &field, int64_t element) {
    const int64_t gaps = field.outer_gap | field.middle_gap | field.inner_gap | field.head_gap;
    return gaps % 4 == 0 && reinterpret_cast<uintptr_t>(field.data) % (4 * element) == 0;
}

} // namespace

// ---- the host's side ----------------------------------------------------------------------------

berth_status gpu_encoder_check(const berth_op_site *site, int64_t width) {
    return width <= GPU_ENCODER_WIDTH
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "heads of at most %d elements",
                                   GPU_ENCODER_WIDTH);
}

berth_status gpu_encoder_run(const gpu_op *op, gpu_encoder_call call, berth_dtype dtype) {
    if (call.tokens == 0) {
        return BERTH_OK;
    }
    const int64_t element = BERTH_DTYPE_BITS(dtype) / 8;
    call.is_wide = call.width % 4 == 0 && is_aligned(call.query, element) &&
                   is_aligned(call.key, element) && is_aligned(call.value, element);
    return gpu_with_type(
        dtype, [&](auto type) { return start_width<typename decltype(type)::type>(op, call); });
}

namespace {

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_encoder_check(site, berth_site_attribute(site, "head_size")->i64);
}

// [batch, tokens, heads · width] or [batch, tokens, heads, width].
gpu_encoder_field field_of(const gpu_encoder *op, const berth_tensor *x) {
    gpu_encoder_field out = {};
    out.data = berth_gpu_data(x);
    out.middle_gap = x->strides[0];
    out.inner_gap = x->strides[1];
    out.head_gap = x->ndim == 4 ? x->strides[2] : op->width;
    out.middle = INT_MAX;
    out.inner = static_cast<int>(x->shape[1]);
    return out;
}

} // namespace

berth_status gpu_encoder_create(const berth_op_site *site, const berth_device *device,
                                void **out_self) {
    const berth_status status = gpu_new<gpu_encoder>(site, device, out_self);
    if (status == BERTH_OK) {
        gpu_encoder *self = static_cast<gpu_encoder *>(*out_self);
        self->attend = gpu_encoder_run;
        const berth_attribute *scale = berth_site_attribute(site, "scale");
        const berth_attribute *kv_heads = berth_site_attribute(site, "num_kv_heads");
        self->heads = static_cast<int>(berth_site_attribute(site, "num_heads")->i64);
        self->kv_heads =
            kv_heads->kind == BERTH_ATTRIBUTE_NONE ? self->heads : static_cast<int>(kv_heads->i64);
        self->width = static_cast<int>(berth_site_attribute(site, "head_size")->i64);
        self->scale = scale->kind == BERTH_ATTRIBUTE_NONE
                          ? 1.0f / sqrtf(static_cast<float>(self->width))
                          : static_cast<float>(scale->f64);
    }
    return status;
}

berth_status gpu_encoder_forward(void *self, const berth_op_args *args) {
    const gpu_encoder *op = static_cast<const gpu_encoder *>(self);
    const berth_tensor *query = args->inputs[QUERY];
    const berth_tensor *starts = args->inputs[CU_SEQLENS];
    gpu_encoder_call call = {};
    call.query = field_of(op, query);
    call.key = field_of(op, args->inputs[KEY]);
    call.value = field_of(op, args->inputs[VALUE]);
    call.out = field_of(op, args->outputs[0]);
    call.starts = starts ? berth_gpu_data(starts) : nullptr;
    call.starts_dtype = starts ? starts->dtype : BERTH_DTYPE_I32;
    call.segments = static_cast<int>(starts ? starts->shape[0] - 1 : query->shape[0]);
    call.length = static_cast<int>(query->shape[1]);
    call.tokens = static_cast<int>(query->shape[0] * query->shape[1]);
    call.heads = op->heads;
    call.kv_heads = op->kv_heads;
    call.width = op->width;
    call.scale = op->scale;
    return op->attend(op, call, query->dtype);
}

extern "C" {
extern const berth_op_impl berth_kernel_mm_encoder_attn;
const berth_op_impl berth_kernel_mm_encoder_attn = {
    BERTH_GPU_KERNEL("mm_encoder_attn"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_encoder_create,
    .forward = gpu_encoder_forward,
    .destroy = gpu_destroy,
};
}
