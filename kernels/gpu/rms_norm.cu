// SPDX-License-Identifier: Apache-2.0
// rms_norm on a GPU: y = x / sqrt(mean(x²) + eps) · weight, with x + residual before it when there
// is one. A row is read from memory once and kept in registers; short rows have a warp each, others
// a block. Sums in f32, one rounding of y.
#include "launch.h"

namespace {

constexpr int PACKS = 2;          // that a thread keeps
constexpr int WARP_ROWS = 8;      // rows of a block, where a row has a warp
constexpr int MAX_THREADS = 1024; // of a row

enum { INPUT_X, INPUT_RESIDUAL, INPUT_WEIGHT };
enum { OUTPUT_Y, OUTPUT_RESIDUAL };

struct norm : gpu_op {
    float eps;
    int64_t columns; // that the mean runs over
};

struct operands {
    gpu_rows x;
    gpu_rows residual;
    gpu_rows y;
    gpu_rows residual_out;
    const void *weight; // NULL: absent
    berth_dtype weight_dtype;
    float eps;
    int64_t rows;
    int64_t hidden;
    int64_t columns;
};

template <typename T, int N>
__device__ gpu_pack<float, N> load_sum(const T *x, const T *residual, int64_t i) {
    const gpu_pack<T, N> a = gpu_load<T, N>(x, i);
    gpu_pack<float, N> sum;
    for (int j = 0; j < N; ++j) {
        sum.at[j] = gpu_float(a.at[j]);
    }
    if (residual) {
        const gpu_pack<T, N> b = gpu_load<T, N>(residual, i);
        for (int j = 0; j < N; ++j) {
            sum.at[j] += gpu_float(b.at[j]);
        }
    }
    return sum;
}

template <typename T, int N>
__device__ void store(T *to, int64_t i, const gpu_pack<float, N> &values) {
    gpu_pack<T, N> pack;
    for (int j = 0; j < N; ++j) {
        pack.at[j] = gpu_round<T>(values.at[j]);
    }
    gpu_store<T, N>(to, i, pack);
}

// Columns beyond the mean's do not count.
template <int N>
__device__ float squares_of(const gpu_pack<float, N> &pack, int64_t i, int64_t columns) {
    float squares = 0;
    for (int j = 0; j < N; ++j) {
        squares += i + j < columns ? pack.at[j] * pack.at[j] : 0.0f;
    }
    return squares;
}

// One row's pointers.
template <typename T> struct row_of {
    const T *x;
    const T *residual;
    T *sums;
    T *y;
};

template <typename T> __device__ row_of<T> find_row(const operands &all, int64_t row) {
    return row_of<T>{gpu_row<const T>(all.x, row),
                     all.residual.data ? gpu_row<const T>(all.residual, row) : nullptr,
                     all.residual.data ? gpu_row<T>(all.residual_out, row) : nullptr,
                     gpu_row<T>(all.y, row)};
}

__device__ float scale_of(const operands &all, float squares, float *room) {
    const float sum = blockDim.x == 32 ? gpu_warp_sum(squares) : gpu_block_sum(squares, room);
    return rsqrtf(sum / static_cast<float>(all.columns) + all.eps);
}

// blockDim.x threads a row, blockDim.y rows a block; a thread has at most PACKS packs of a row.
template <typename T, int N> __global__ void rms_norm_kernel(operands all) {
    __shared__ float room[MAX_THREADS / 32];
    const int64_t step = static_cast<int64_t>(blockDim.x) * N;
    const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
    gpu_pack<T, N> weights[PACKS]; // of the row's type
    gpu_pack<float, N> kept[PACKS];
    float squares = 0;
    gpu_let_next_begin();
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64_t i = first + p * step;
        if (all.weight && i < all.hidden) {
            weights[p] = gpu_load<T, N>(static_cast<const T *>(all.weight), i);
        }
    }
    gpu_wait_for_inputs();
    const int64_t number = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    if (number >= all.rows) {
        return; // whole warps, and only where a row has no more than one
    }
    const row_of<T> row = find_row<T>(all, number);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64_t i = first + p * step;
        if (i < all.hidden) {
            kept[p] = load_sum<T, N>(row.x, row.residual, i);
            squares += squares_of<N>(kept[p], i, all.columns);
            if (row.sums) {
                store<T, N>(row.sums, i, kept[p]);
            }
        }
    }
    const float scale = scale_of(all, squares, room);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64_t i = first + p * step;
        if (i < all.hidden) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                kept[p].at[j] *= all.weight ? scale * gpu_float(weights[p].at[j]) : scale;
            }
            store<T, N>(row.y, i, kept[p]);
        }
    }
}

// Rows of any length and alignment: every thread reads twice.
template <typename T> __global__ void long_rms_norm_kernel(operands all) {
    __shared__ float room[MAX_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const row_of<T> row = find_row<T>(all, blockIdx.x);
    float squares = 0;
    for (int64_t i = threadIdx.x; i < all.hidden; i += blockDim.x) {
        const gpu_pack<float, 1> value = load_sum<T, 1>(row.x, row.residual, i);
        squares += squares_of<1>(value, i, all.columns);
    }
    const float scale = scale_of(all, squares, room);
    for (int64_t i = threadIdx.x; i < all.hidden; i += blockDim.x) {
        gpu_pack<float, 1> value = load_sum<T, 1>(row.x, row.residual, i);
        if (row.sums) {
            store<T, 1>(row.sums, i, value);
        }
        value.at[0] *= all.weight ? scale * gpu_load_any(all.weight, all.weight_dtype, i) : scale;
        store<T, 1>(row.y, i, value);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_status status = gpu_check_floats(site, 0);
    return status == BERTH_OK ? gpu_check_rank(site, INPUT_X) : status;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<norm>(site, device, out_self);
    if (status == BERTH_OK) {
        norm *self = static_cast<norm *>(*out_self);
        const berth_value_type *x = site->inputs[INPUT_X];
        const berth_attribute *columns = berth_site_attribute(site, "var_hidden_size");
        self->eps = static_cast<float>(berth_site_attribute(site, "eps")->f64);
        self->columns =
            columns->kind == BERTH_ATTRIBUTE_NONE ? x->dims[x->ndim - 1].b : columns->i64;
    }
    return status;
}

operands operands_of(const norm *op, const berth_op_args *args) {
    const berth_tensor *x = args->inputs[INPUT_X];
    const berth_tensor *weight = args->inputs[INPUT_WEIGHT];
    operands all = {};
    all.x = gpu_rows_of(x);
    all.residual = gpu_rows_of(args->inputs[INPUT_RESIDUAL]);
    all.y = gpu_rows_of(args->outputs[OUTPUT_Y]);
    all.residual_out =
        gpu_rows_of(args->inputs[INPUT_RESIDUAL] ? args->outputs[OUTPUT_RESIDUAL] : nullptr);
    all.weight = weight ? berth_gpu_data(weight) : nullptr;
    all.weight_dtype = weight ? weight->dtype : x->dtype;
    all.eps = op->eps;
    all.rows = berth_tensor_row_count(x);
    all.hidden = x->shape[x->ndim - 1];
    all.columns = op->columns;
    return all;
}

bool is_wide(const operands &all, berth_dtype dtype, int elements) {
    return all.hidden % elements == 0 && all.weight_dtype == dtype &&
           reinterpret_cast<uintptr_t>(all.weight) % 16 == 0 && gpu_is_aligned(all.x) &&
           gpu_is_aligned(all.y) && gpu_is_aligned(all.residual) &&
           gpu_is_aligned(all.residual_out);
}

template <typename T> berth_status start(const norm *op, const operands &all, bool is_vector) {
    constexpr int N = gpu_wide<T>;
    const int64_t packs = all.hidden / N;
    if (!is_vector || packs > MAX_THREADS * PACKS) {
        const gpu_grid grid = {dim3(static_cast<unsigned>(all.rows)), dim3(256), 0};
        return gpu_run(op, "rms_norm", grid, long_rms_norm_kernel<T>, all);
    }
    if (packs <= 32) {
        const gpu_grid grid = {dim3(gpu_ceil(all.rows, WARP_ROWS)), dim3(32, WARP_ROWS), 0};
        return gpu_run(op, "rms_norm", grid, rms_norm_kernel<T, N>, all);
    }
    // Few rows: as many threads as packs. Many: two packs a thread, so that a block is cheaper.
    const int64_t wanted = all.rows < 128 ? packs : (packs + 1) / 2;
    const int64_t threads = (wanted + 31) / 32 * 32;
    const gpu_grid grid = {
        dim3(static_cast<unsigned>(all.rows)),
        dim3(static_cast<unsigned>(threads < MAX_THREADS ? threads : MAX_THREADS)), 0};
    return gpu_run(op, "rms_norm", grid, rms_norm_kernel<T, N>, all);
}

berth_status forward(void *self, const berth_op_args *args) {
    const norm *op = static_cast<const norm *>(self);
    const operands all = operands_of(op, args);
    const berth_dtype dtype = args->inputs[INPUT_X]->dtype;
    if (all.rows == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return start<T>(op, all, is_wide(all, dtype, gpu_wide<T>));
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_rms_norm;
const berth_op_impl berth_kernel_rms_norm = {
    .size = sizeof(berth_op_impl),
    .op = "rms_norm",
    .name = "gpu.rms_norm",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
