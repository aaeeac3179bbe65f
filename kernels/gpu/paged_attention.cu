// SPDX-License-Identifier: Apache-2.0
// paged_attention on a GPU, of every form: a block of four warps for each token and head, each warp
// with keys of its own and a running softmax, which are put together at the end. All in f32. Codes
// of a cache are multiplied as numbers, their sums then by the scale.
#include "attention.h"
#include "codes.h"

#include <math.h>

namespace {

constexpr int WARPS = 4;
constexpr int PER_LANE = 16; // elements of a head that a lane has
constexpr int MAX_WIDTH = 32 * PER_LANE;
constexpr int STORE_THREADS = 128;

enum {
    QUERY,
    KEY,
    VALUE,
    SINKS,
    ALIBI_SLOPES,
    SINK_KEY,
    SINK_VALUE,
    KEY_SCALE,
    VALUE_SCALE,
};
enum { KEY_CACHE, VALUE_CACHE };

// ---- storing ------------------------------------------------------------------------------------

// The number as a cache keeps it.
template <typename C> __device__ C kept(float value, float scale) {
    return gpu_round<C>(sizeof(C) == 1 ? gpu_div_rn(value, scale) : value);
}

template <typename T, typename C, int N> __global__ void store_kernel(gpu_attention_call call) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int64_t slot = call.slots[blockIdx.x];
    if (slot < 0) {
        return;
    }
    C *keys = static_cast<C *>(call.key_cache) + slot * call.kv_heads * call.width;
    C *values = static_cast<C *>(call.value_cache) + slot * call.kv_heads * call.width;
    const float key_scale = gpu_cache_scale(call.key_scale);
    const float value_scale = gpu_cache_scale(call.value_scale);
    const int packs = call.width / N;
    for (int at = threadIdx.x; at < call.kv_heads * packs; at += STORE_THREADS) {
        const int head = at / packs;
        const int i = (at - head * packs) * N;
        const int64_t row = static_cast<int64_t>(blockIdx.x) * call.kv_heads + head;
        const gpu_pack<T, N> key = gpu_load<T, N>(gpu_row<const T>(call.key, row), i);
        const gpu_pack<T, N> value = gpu_load<T, N>(gpu_row<const T>(call.value, row), i);
        gpu_pack<C, N> key_out;
        gpu_pack<C, N> value_out;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            key_out.at[j] = kept<C>(gpu_float(key.at[j]), key_scale);
            value_out.at[j] = kept<C>(gpu_float(value.at[j]), value_scale);
        }
        gpu_store<C, N>(keys, head * call.width + i, key_out);
        gpu_store<C, N>(values, head * call.width + i, value_out);
    }
}

template <typename T, typename C>
berth_status start_store(const gpu_op *op, const gpu_attention_call &call) {
    constexpr int N = gpu_wide<T> < gpu_wide<C> ? gpu_wide<T> : gpu_wide<C>;
    const uint64_t caches =
        reinterpret_cast<uintptr_t>(call.key_cache) | reinterpret_cast<uintptr_t>(call.value_cache);
    const bool is_wide = call.width % gpu_wide<gpu_bf16> == 0 && gpu_is_aligned(call.key) &&
                         gpu_is_aligned(call.value) && caches % 16 == 0;
    const gpu_grid grid = {dim3(static_cast<unsigned>(call.tokens)), dim3(STORE_THREADS), 0};
    return is_wide ? gpu_run(op, "paged_attention's store", grid, store_kernel<T, C, N>, call)
                   : gpu_run(op, "paged_attention's store", grid, store_kernel<T, C, 1>, call);
}

// ---- attending ----------------------------------------------------------------------------------

// The running softmax of a warp or of all of them: the largest score, the sum of weights.
struct softmax {
    float largest;
    float total;
};

// The last sequence that begins at or before the token.
__device__ int sequence_of(const gpu_attention_call &call, int token) {
    int low = 0;
    int high = call.sequences - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (call.starts[middle] <= token) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

__device__ int first_seen(const gpu_attention_call &call, int position) {
    return call.chunk > 0                               ? position / call.chunk * call.chunk
           : call.window > 0 && position >= call.window ? position - call.window + 1
                                                        : 0;
}

// Positions count from the first of the tokens before the sequence, where there are such.
struct view {
    int position;
    int begin; // of what it sees
    int end;
};

__device__ view view_of(const gpu_attention_call &call, int sequence, int token) {
    const int length = call.lengths[sequence] + call.first_tokens;
    const int position = length - (call.starts[sequence + 1] - token);
    view out = {position, first_seen(call, position), position + 1};
    if (call.causal && call.causal[min(sequence, call.causal_count - 1)] == 0) {
        out.end =
            call.window > 0 && call.window < length - position ? position + call.window : length;
    }
    return out;
}

// What scores and values are multiplied by, and what distance takes away.
struct factors {
    float score;
    float value;
    float slope;
};

// A lane's part of a query's head, and of what its warp has taken in.
struct part {
    softmax state;
    float query[PER_LANE];
    float sums[PER_LANE];

    template <typename T> __device__ void begin(const gpu_attention_call &call, const T *from) {
        state = softmax{-INFINITY, 0};
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int at = threadIdx.x + 32 * i;
            query[i] = at < call.width ? gpu_float(from[at]) : 0.0f;
            sums[i] = 0;
        }
    }
    template <typename C>
    __device__ void take(const gpu_attention_call &call, const C *key, const C *value,
                         const factors &by, int distance) {
        const int lane = threadIdx.x;
        float dot = 0;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            if (lane + 32 * i < call.width) {
                dot += query[i] * gpu_float(key[lane + 32 * i]);
            }
        }
        float score = gpu_soft_cap(gpu_warp_sum(dot) * by.score, call.soft_cap);
        score -= by.slope * static_cast<float>(distance);
        const float largest = fmaxf(state.largest, score);
        const float old = expf(state.largest - largest);
        const float weight = expf(score - largest);
        state = softmax{largest, state.total * old + weight};
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            if (lane + 32 * i < call.width) {
                sums[i] = sums[i] * old + weight * by.value * gpu_float(value[lane + 32 * i]);
            }
        }
    }
};

// One warp's keys: every WARPS-th from the first that the position sees + its number on. Sums are
// multiplied by the scale of a cache's codes at the end, which the tokens before have to undo.
template <typename T, typename C>
__device__ void attend(const gpu_attention_call &call, int sequence, const view &seen, part *mine) {
    const int head = blockIdx.y;
    const int kv_head = head / (call.heads / call.kv_heads);
    const int32_t *blocks = call.block_table + sequence * call.table_stride;
    factors by = {call.scale, 1.0f / gpu_cache_scale(call.value_scale),
                  call.slopes ? gpu_load_any(call.slopes, call.slope_dtype, head) : 0.0f};
    int j = seen.begin + static_cast<int>(threadIdx.y);
    for (; j < call.first_tokens && j < seen.end; j += WARPS) {
        const int64_t row = static_cast<int64_t>(j) * call.kv_heads + kv_head;
        mine->take(call, gpu_row<const T>(call.first_key, row),
                   gpu_row<const T>(call.first_value, row), by, seen.position - j);
    }
    by.score = call.scale * gpu_cache_scale(call.key_scale);
    by.value = 1;
    for (; j < seen.end; j += WARPS) {
        const int place = j - call.first_tokens;
        const int64_t slot =
            static_cast<int64_t>(blocks[place / call.block_size]) * call.block_size +
            place % call.block_size;
        const int64_t row = (slot * call.kv_heads + kv_head) * call.width;
        mine->take(call, static_cast<const C *>(call.key_cache) + row,
                   static_cast<const C *>(call.value_cache) + row, by, seen.position - j);
    }
}

// What a warp's sums count for beside the others'.
__device__ float share_of(float largest, float overall) {
    return largest == -INFINITY ? 0.0f : expf(largest - overall);
}

template <typename T>
__device__ void put_together(const gpu_attention_call &call, const softmax *states,
                             const float (*sums)[MAX_WIDTH]) {
    const float sink =
        call.sinks ? gpu_load_any(call.sinks, call.sink_dtype, blockIdx.y) : -INFINITY;
    float overall = sink;
    for (int warp = 0; warp < WARPS; ++warp) {
        overall = fmaxf(overall, states[warp].largest);
    }
    float total = share_of(sink, overall);
    for (int warp = 0; warp < WARPS; ++warp) {
        total += states[warp].total * share_of(states[warp].largest, overall);
    }
    const float scale = gpu_cache_scale(call.value_scale);
    const int64_t row = static_cast<int64_t>(blockIdx.x) * call.heads + blockIdx.y;
    for (int i = threadIdx.y * 32 + threadIdx.x; i < call.width; i += 32 * WARPS) {
        float sum = 0;
        for (int warp = 0; warp < WARPS; ++warp) {
            sum += sums[warp][i] * share_of(states[warp].largest, overall);
        }
        gpu_row<T>(call.out, row)[i] = gpu_round<T>(sum / total * scale);
    }
}

template <typename T, typename C> __global__ void attention_kernel(gpu_attention_call call) {
    __shared__ float all_sums[WARPS][MAX_WIDTH];
    __shared__ softmax states[WARPS];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int token = blockIdx.x;
    const int sequence = sequence_of(call, token);
    const int64_t row = static_cast<int64_t>(token) * call.heads + blockIdx.y;
    part mine;
    mine.begin(call, gpu_row<const T>(call.query, row));
    attend<T, C>(call, sequence, view_of(call, sequence, token), &mine);
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        all_sums[threadIdx.y][threadIdx.x + 32 * i] = mine.sums[i];
    }
    states[threadIdx.y] = mine.state;
    __syncthreads();
    put_together<T>(call, states, all_sums);
}

} // namespace

// ---- the host's side ----------------------------------------------------------------------------

berth_status gpu_attention_check(const berth_op_site *site) {
    const berth_attribute *causal = berth_site_attribute(site, "causal_per_sequence");
    if (causal && causal->kind != BERTH_ATTRIBUTE_NONE) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "no causal_per_sequence");
    }
    if (site->inputs[SINK_KEY]) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "no sink_key and sink_value");
    }
    return gpu_check_floats(site, 0);
}

void gpu_attention_read(const berth_op_site *site, gpu_attention *self) {
    self->scale = static_cast<float>(berth_site_attribute(site, "scale")->f64);
    self->soft_cap = static_cast<float>(berth_site_attribute(site, "logits_soft_cap")->f64);
    self->window = berth_site_attribute(site, "sliding_window")->i64;
    const berth_attribute *chunk = berth_site_attribute(site, "chunk_size");
    self->chunk = chunk && chunk->kind != BERTH_ATTRIBUTE_NONE ? chunk->i64 : 0;
    self->group = site->cache_group;
}

static const float *scale_of(const berth_op_args *args, int input) {
    const berth_tensor *scale = args->inputs[input];
    return scale ? static_cast<const float *>(berth_gpu_data(scale)) : nullptr;
}

static void read_batch(const gpu_attention *self, const berth_batch *batch,
                       gpu_attention_call *out) {
    const berth_batch_view *view = batch->device;
    const berth_tensor *table = view->block_tables[self->group];
    out->starts = static_cast<const int32_t *>(berth_gpu_data(view->query_start_loc));
    out->lengths = static_cast<const int32_t *>(berth_gpu_data(view->seq_lens));
    out->block_table = static_cast<const int32_t *>(berth_gpu_data(table));
    out->table_stride = table->strides[0];
    out->sequences = static_cast<int>(batch->sequence_count);
    out->slots =
        out->key.data
            ? static_cast<const int64_t *>(berth_gpu_data(view->slot_mappings[self->group]))
            : nullptr;
}

berth_status gpu_attention_begin(const gpu_attention *self, const berth_op_args *args,
                                 gpu_attention_call *out) {
    if (!args->batch || !args->batch->device) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                 "paged_attention: needs a batch");
    }
    const berth_tensor *query = args->inputs[QUERY];
    const berth_tensor *cache = args->states[KEY_CACHE];
    const berth_tensor *sinks = args->inputs[SINKS];
    const berth_tensor *slopes = args->inputs[ALIBI_SLOPES];
    *out = gpu_attention_call{};
    out->query = gpu_rows_of(query);
    out->key = gpu_rows_of(args->inputs[KEY]);
    out->value = gpu_rows_of(args->inputs[VALUE]);
    out->out = gpu_rows_of(args->outputs[0]);
    out->key_cache = berth_gpu_data(cache);
    out->value_cache = berth_gpu_data(args->states[VALUE_CACHE]);
    out->cache_dtype = cache->dtype;
    out->key_scale = scale_of(args, KEY_SCALE);
    out->value_scale = scale_of(args, VALUE_SCALE);
    out->sinks = sinks ? berth_gpu_data(sinks) : nullptr;
    out->sink_dtype = sinks ? sinks->dtype : query->dtype;
    out->slopes = slopes ? berth_gpu_data(slopes) : nullptr;
    out->slope_dtype = slopes ? slopes->dtype : query->dtype;
    out->first_key = gpu_rows_of(args->inputs[SINK_KEY]);
    out->first_value = gpu_rows_of(args->inputs[SINK_VALUE]);
    out->first_tokens =
        args->inputs[SINK_KEY] ? static_cast<int>(args->inputs[SINK_KEY]->shape[0]) : 0;
    out->causal = self->causal;
    out->causal_count = self->causal_count;
    out->tokens = static_cast<int>(query->shape[0]);
    out->heads = static_cast<int>(query->shape[1]);
    out->width = static_cast<int>(query->shape[2]);
    out->blocks = cache->shape[0];
    out->block_size = static_cast<int>(cache->shape[1]);
    out->kv_heads = static_cast<int>(cache->shape[2]);
    while (1 << (out->block_shift + 1) <= out->block_size) {
        ++out->block_shift;
    }
    out->scale = self->scale;
    out->soft_cap = self->soft_cap;
    out->window = static_cast<int>(self->window);
    out->chunk = static_cast<int>(self->chunk);
    read_batch(self, args->batch, out);
    return BERTH_OK;
}

// As gpu_with_type, and with <gpu_f8>.
template <typename F> static berth_status with_cache(berth_dtype dtype, F call) {
    return dtype == BERTH_DTYPE_F8_E4M3FN ? call(gpu_type<gpu_f8>{}) : gpu_with_type(dtype, call);
}

berth_status gpu_attention_store(const gpu_op *op, const gpu_attention_call &call,
                                 berth_dtype dtype) {
    if (!call.slots || call.tokens == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(dtype, [&](auto type) {
        return with_cache(call.cache_dtype, [&](auto cache) {
            return start_store<typename decltype(type)::type, typename decltype(cache)::type>(op,
                                                                                              call);
        });
    });
}

berth_status gpu_attention_run(const gpu_op *op, const gpu_attention_call &call,
                               berth_dtype dtype) {
    if (call.tokens == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {
        dim3(static_cast<unsigned>(call.tokens), static_cast<unsigned>(call.heads)),
        dim3(32, WARPS), 0};
    return gpu_with_type(dtype, [&](auto type) {
        return with_cache(call.cache_dtype, [&](auto cache) {
            return gpu_run(
                op, "paged_attention", grid,
                attention_kernel<typename decltype(type)::type, typename decltype(cache)::type>,
                call);
        });
    });
}

static berth_status supports(const berth_op_site *site, const berth_device *) {
    if (site->inputs[QUERY]->dims[2].b > MAX_WIDTH) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "heads of at most %d elements",
                                 MAX_WIDTH);
    }
    return gpu_check_floats(site, 0);
}

static void destroy(void *self) {
    (void)gpuFree(static_cast<gpu_attention *>(self)->causal);
    gpu_destroy(self);
}

// Which sequences are causal, in device memory; nothing where all are.
static berth_status keep_causal(const berth_op_site *site, gpu_attention *self) {
    const berth_attribute *list = berth_site_attribute(site, "causal_per_sequence");
    const uint64_t count = list && list->kind != BERTH_ATTRIBUTE_NONE ? list->count : 0;
    const berth_host *host = site->host;
    if (count == 0) {
        return BERTH_OK;
    }
    int32_t *questions = static_cast<int32_t *>(host->alloc(host, count * sizeof(int32_t), 0));
    if (!questions) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for causal_per_sequence");
    }
    for (uint64_t i = 0; i < count; ++i) {
        questions[i] = list->i64s[i] != 0;
    }
    void *memory = nullptr;
    const berth_status status = gpu_keep(self, questions, count * sizeof(int32_t), &memory);
    host->free(host, questions);
    self->causal = static_cast<int32_t *>(memory);
    self->causal_count = static_cast<int>(count);
    return status;
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<gpu_attention>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    gpu_attention *self = static_cast<gpu_attention *>(*out_self);
    gpu_attention_read(site, self);
    status = keep_causal(site, self);
    if (status != BERTH_OK) {
        destroy(self);
    }
    return status;
}

static berth_status forward(void *self, const berth_op_args *args) {
    const gpu_attention *op = static_cast<const gpu_attention *>(self);
    const berth_dtype dtype = args->inputs[QUERY]->dtype;
    gpu_attention_call call;
    berth_status status = gpu_attention_begin(op, args, &call);
    status = status == BERTH_OK ? gpu_attention_store(op, call, dtype) : status;
    return status == BERTH_OK ? gpu_attention_run(op, call, dtype) : status;
}

extern "C" {
extern const berth_op_impl berth_kernel_paged_attention;
const berth_op_impl berth_kernel_paged_attention = {
    .size = sizeof(berth_op_impl),
    .op = "paged_attention",
    .name = "gpu.paged_attention",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 4,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = destroy,
};
}
