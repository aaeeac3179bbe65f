// SPDX-License-Identifier: Apache-2.0
// What the host side of every kernel needs: instances, rows of tensors, launches, and a function
// called with the type that a dtype stands for.
#ifndef BERTH_KERNELS_GPU_LAUNCH_H
#define BERTH_KERNELS_GPU_LAUNCH_H

#include <gpu/element.h>

// ---- instances ----------------------------------------------------------------------------------

// The beginning of every instance.
struct gpu_op {
    const berth_host *host;
    berth_gpu *gpu;
    uint64_t device;
    gpuStream_t stream;
};

// Zeroed but for what every instance has. S is derived from gpu_op.
template <typename S>
static inline berth_status gpu_new(const berth_op_site *site, const berth_device *device,
                                   void **out_self) {
    const berth_host *host = site->host;
    S *self = static_cast<S *>(host->alloc(host, sizeof(S), 0));
    if (!self) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for %s", site->op->name);
    }
    self->host = host;
    self->gpu = static_cast<berth_gpu *>(device->self);
    self->device = device->index;
    self->stream = self->gpu->streams[device->index];
    *out_self = self;
    return BERTH_OK;
}

static inline berth_status gpu_create(const berth_op_site *site, const berth_device *device,
                                      void **out_self) {
    return gpu_new<gpu_op>(site, device, out_self);
}

static inline void gpu_destroy(void *self) {
    const berth_host *host = static_cast<gpu_op *>(self)->host;
    host->free(host, self);
}

// Device memory of an instance, filled from the host's, or with zeros where `from` is NULL. Only at
// start-up: it waits.
static inline berth_status gpu_keep(const gpu_op *op, const void *from, uint64_t bytes,
                                    void **out_memory) {
    gpuError_t error = gpuMalloc(out_memory, bytes);
    if (error == gpuSuccess) {
        error = from ? gpuMemcpy(*out_memory, from, bytes, gpuUpload)
                     : gpuMemset(*out_memory, 0, bytes);
    }
    return error == gpuSuccess
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(op->host, BERTH_OUT_OF_MEMORY, "%llu bytes of device memory: %s",
                                   (unsigned long long)bytes, gpuGetErrorString(error));
}

// What the table of a kernel of kernels/gpu begins with; its revision follows, then the slots.
#define BERTH_GPU_KERNEL(op_name)                                                                  \
    .size = sizeof(berth_op_impl), .op = (op_name), .name = "gpu." op_name,                        \
    .dispatch_key = BERTH_GPU_KEY

// ---- launches -----------------------------------------------------------------------------------

struct gpu_grid {
    dim3 blocks;
    dim3 threads;
    uint32_t shared; // bytes, dynamic
};

template <typename K, typename... A>
static inline berth_status gpu_run(const gpu_op *op, const char *name, const gpu_grid &grid,
                                   K *kernel, A... arguments) {
    gpu_start(op->gpu, op->device, grid.blocks, grid.threads, grid.shared, op->stream, kernel,
              arguments...);
    return berth_gpu_launched(op->host, name);
}

static inline unsigned gpu_ceil(int64_t count, int64_t of) {
    return static_cast<unsigned>((count + of - 1) / of);
}

// What a dimension of a site is in a batch of that many tokens; for workspaces.
static inline uint64_t gpu_extent(berth_dim dim, uint64_t tokens) {
    const int64_t count = dim.symbol == BERTH_SYMBOL_NONE
                              ? dim.b
                              : (dim.a * static_cast<int64_t>(tokens) + dim.b + dim.c - 1) / dim.c;
    return static_cast<uint64_t>(count);
}

// ---- types --------------------------------------------------------------------------------------

template <typename T> struct gpu_type { using type = T; };

static inline int gpu_is_float(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_F32 || dtype == BERTH_DTYPE_BF16 || dtype == BERTH_DTYPE_F16;
}

// Calls with gpu_type<float>, <gpu_bf16> or <gpu_f16>.
template <typename F> static inline berth_status gpu_with_type(berth_dtype dtype, F call) {
    return dtype == BERTH_DTYPE_F32    ? call(gpu_type<float>{})
           : dtype == BERTH_DTYPE_BF16 ? call(gpu_type<gpu_bf16>{})
                                       : call(gpu_type<gpu_f16>{});
}

// Every input of the site is absent or of a type of floats.
static inline berth_status gpu_check_floats(const berth_op_site *site, uint64_t first) {
    for (uint64_t i = first; i < site->input_count; ++i) {
        if (site->inputs[i] && !gpu_is_float(site->inputs[i]->dtype)) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only f32, bf16 and f16");
        }
    }
    return BERTH_OK;
}

// A kernel reads an input in the type of another one.
static inline berth_status gpu_check_same(const berth_op_site *site, uint64_t input, uint64_t as) {
    return !site->inputs[input] || site->inputs[input]->dtype == site->inputs[as]->dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "'%s' must have the dtype of '%s' here",
                                   site->op->inputs[input]->name, site->op->inputs[as]->name);
}

// ---- rows ---------------------------------------------------------------------------------------

// A tensor as rows of its last dimension. What lies behind the first one has no gaps but between
// rows: no op is given another layout.
struct gpu_rows {
    char *data;        // NULL: absent
    int64_t inner;     // rows of one step of the first dimension
    int64_t outer_gap; // bytes
    int64_t inner_gap;
};

static inline gpu_rows gpu_rows_of(const berth_tensor *tensor) {
    if (!tensor) {
        return gpu_rows{nullptr, 1, 0, 0};
    }
    const int64_t bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
    const int is_deep = tensor->ndim > 2;
    gpu_rows rows = {static_cast<char *>(berth_gpu_data(tensor)), 1,
                     tensor->ndim > 1 ? tensor->strides[0] * bytes : 0,
                     is_deep ? tensor->strides[tensor->ndim - 2] * bytes : 0};
    for (int32_t dim = 1; dim < tensor->ndim - 1; ++dim) {
        rows.inner *= tensor->shape[dim];
    }
    return rows;
}

// Why 32 bits: a division of 64 takes as long as a load, and no batch has so many rows.
template <typename T> static __device__ inline T *gpu_row(const gpu_rows &rows, int64_t row) {
    const int64_t outer =
        rows.inner == 1 ? row : static_cast<uint32_t>(row) / static_cast<uint32_t>(rows.inner);
    return reinterpret_cast<T *>(rows.data + outer * rows.outer_gap +
                                 (row - outer * rows.inner) * rows.inner_gap);
}

// Whether every row begins at a multiple of 16 bytes.
static inline int gpu_is_aligned(const gpu_rows &rows) {
    const uint64_t all = reinterpret_cast<uintptr_t>(rows.data) |
                         static_cast<uint64_t>(rows.outer_gap) |
                         static_cast<uint64_t>(rows.inner_gap);
    return all % 16 == 0;
}

// The same of rows that are `gap` bytes apart.
static inline int gpu_is_aligned(const void *data, int64_t gap) {
    return (reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(gap)) % 16 == 0;
}

static inline berth_status gpu_check_rank(const berth_op_site *site, uint64_t input) {
    return site->inputs[input]->ndim <= 3
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "at most 3 dimensions");
}

#endif
