// SPDX-License-Identifier: Apache-2.0
// lightning_attention on a GPU: a block has 32 columns of the memory of a head of a batch row, in
// shared memory, and goes through the tokens; each of its warps has every WARPS-th line of them.
#include "launch.h"

#include <sequences.h>

namespace {

constexpr int WARPS = 8;
constexpr int MAX_KEYS = 256; // lines of a memory: 32 KiB of it

enum { Q, K, V, ED };

// A tensor of 4 dimensions as lines of its last one.
struct lines {
    const char *data;
    int64_t gaps[3]; // bytes
};

struct operands {
    lines q, k, v;
    const void *ed;
    berth_dtype ed_dtype;
    void *memory; // [rows, heads, keys, values]
    berth_dtype memory_dtype;
    void *y; // like v, dense
    int heads, tokens, keys, values;
};

template <typename T> __device__ const T *line_of(const lines &all, int row, int head, int token) {
    return reinterpret_cast<const T *>(all.data + row * all.gaps[0] + head * all.gaps[1] +
                                       token * all.gaps[2]);
}

// blockIdx.x: which columns; blockIdx.y: the head; blockIdx.z: the row of the batch.
template <typename T> __global__ void lightning_kernel(operands all) {
    extern __shared__ float memory[]; // [keys][32], then [WARPS][32] sums
    float *sums = memory + all.keys * 32;
    const int lane = threadIdx.x;
    const int warp = threadIdx.y;
    const int column = static_cast<int>(blockIdx.x) * 32 + lane;
    const bool is_there = column < all.values;
    const int64_t row = static_cast<int64_t>(blockIdx.z) * all.heads + blockIdx.y;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const float fade = expf(-gpu_load_any(all.ed, all.ed_dtype, blockIdx.y));
    for (int i = warp; i < all.keys; i += WARPS) {
        memory[i * 32 + lane] = is_there ? gpu_load_any(all.memory, all.memory_dtype,
                                                        (row * all.keys + i) * all.values + column)
                                         : 0.0f;
    }
    for (int token = 0; token < all.tokens; ++token) {
        const T *query = line_of<T>(all.q, blockIdx.z, blockIdx.y, token);
        const T *key = line_of<T>(all.k, blockIdx.z, blockIdx.y, token);
        const T *values = line_of<T>(all.v, blockIdx.z, blockIdx.y, token);
        const float value = is_there ? gpu_float(values[column]) : 0.0f;
        float sum = 0;
        for (int i = warp; i < all.keys; i += WARPS) {
            float *at = memory + i * 32 + lane;
            *at = fade * *at + gpu_float(key[i]) * value;
            sum += gpu_float(query[i]) * *at;
        }
        sums[warp * 32 + lane] = sum;
        __syncthreads();
        if (warp == 0 && is_there) {
            for (int other = 1; other < WARPS; ++other) {
                sum += sums[other * 32 + lane];
            }
            static_cast<T *>(all.y)[(row * all.tokens + token) * all.values + column] =
                gpu_round<T>(sum);
        }
        __syncthreads();
    }
    for (int i = warp; i < all.keys && is_there; i += WARPS) {
        gpu_store_any(all.memory, all.memory_dtype, (row * all.keys + i) * all.values + column,
                      memory[i * 32 + lane]);
    }
}

lines lines_of(const berth_tensor *tensor) {
    const int64_t bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
    return lines{
        static_cast<const char *>(berth_gpu_data(tensor)),
        {tensor->strides[0] * bytes, tensor->strides[1] * bytes, tensor->strides[2] * bytes}
    };
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return site->inputs[Q]->dims[3].b <= MAX_KEYS
               ? gpu_check_floats(site, 0)
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "keys of at most %d elements",
                                   MAX_KEYS);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *q = args->inputs[Q];
    const berth_tensor *v = args->inputs[V];
    const berth_tensor *ed = args->inputs[ED];
    const berth_tensor *memory = args->states[0];
    const int64_t dims[3] = {q->shape[1], q->shape[3], v->shape[3]};
    const berth_status status = berth_state_check(op->host, "lightning_attention", memory, dims, 3);
    if (status != BERTH_OK) {
        return status;
    }
    if (memory->shape[0] < q->shape[0]) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_INVALID_ARGUMENT,
                                 "lightning_attention: a batch of %lld with %lld memories",
                                 (long long)q->shape[0], (long long)memory->shape[0]);
    }
    operands all = {};
    all.q = lines_of(q);
    all.k = lines_of(args->inputs[K]);
    all.v = lines_of(v);
    all.ed = berth_gpu_data(ed);
    all.ed_dtype = ed->dtype;
    all.memory = berth_gpu_data(memory);
    all.memory_dtype = memory->dtype;
    all.y = berth_gpu_data(args->outputs[0]);
    all.heads = static_cast<int>(q->shape[1]);
    all.tokens = static_cast<int>(q->shape[2]);
    all.keys = static_cast<int>(q->shape[3]);
    all.values = static_cast<int>(v->shape[3]);
    const gpu_grid grid = {dim3(gpu_ceil(all.values, 32), static_cast<unsigned>(all.heads),
                                static_cast<unsigned>(q->shape[0])),
                           dim3(32, WARPS),
                           static_cast<uint32_t>((all.keys + WARPS) * 32 * sizeof(float))};
    return q->shape[0] == 0 ? BERTH_OK : gpu_with_type(q->dtype, [&](auto type) {
        return gpu_run(op, "lightning_attention", grid,
                       lightning_kernel<typename decltype(type)::type>, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_lightning_attention;
const berth_op_impl berth_kernel_lightning_attention = {
    BERTH_GPU_KERNEL("lightning_attention"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
