// SPDX-License-Identifier: Apache-2.0
// rms_norm on a GPU: y = x / sqrt(mean(x²) + eps) · weight, with x + residual before it when there
// is one. A row is read from memory once and kept in registers, by a warp where it is short, else
// by a block. Sums in f32, one rounding of y.
#include "launch.h"

namespace {

constexpr int PACKS = 4;         // that a thread of a block keeps
constexpr int WARP_ROWS = 4;     // rows of a block, where a row has a warp
constexpr int MAX_THREADS = 512; // of a row
constexpr int FEW_ROWS = 128;    // leave multiprocessors idle
constexpr int SOME_ROWS = 512;   // are all at work at once

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

__device__ float scale_of(const operands &all, float squares) {
    // Rounded correctly: behind a quantiser the last bit may be a code.
    return gpu_div_rn(1.0f, gpu_sqrt_rn(squares / static_cast<float>(all.columns) + all.eps));
}

// Packs that a thread keeps of its row, `first` elements into it and every `step` from there, as
// they are in memory, so that they take few registers. ADDS: the row is x + residual.
template <typename T, int N, int COUNT, bool ADDS> struct kept_row {
    gpu_pack<T, N> x[COUNT];
    gpu_pack<T, N> residual[ADDS ? COUNT : 1];

    __device__ float value(int p, int j) const {
        return gpu_float(x[p].at[j]) + (ADDS ? gpu_float(residual[ADDS ? p : 0].at[j]) : 0.0f);
    }
    // Zeros behind the end.
    __device__ static void load_packs(const T *from, int hidden, int first, int step,
                                      gpu_pack<T, N> *to) {
#pragma unroll
        for (int p = 0; p < COUNT; ++p) {
            const int i = first + p * step;
            to[p] = i < hidden ? gpu_load<T, N>(from, i) : gpu_pack<T, N>{};
        }
    }
    __device__ void load(const row_of<T> &row, int hidden, int first, int step) {
        load_packs(row.x, hidden, first, step, x);
        if (ADDS) {
            load_packs(row.residual, hidden, first, step, residual);
        }
    }
    // IS_PART: columns from `end` on do not count.
    template <bool IS_PART> __device__ float squares_to(int end, int first, int step) const {
        float sums[2] = {};
#pragma unroll
        for (int p = 0; p < COUNT; ++p) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                const float square = value(p, j) * value(p, j);
                sums[j % 2] += !IS_PART || first + p * step + j < end ? square : 0.0f;
            }
        }
        return sums[0] + sums[1];
    }
    // The sum of the squares; columns from `columns` on do not count.
    __device__ float squares(int columns, int hidden, int first, int step) const {
        return columns < hidden ? squares_to<true>(columns, first, step)
                                : squares_to<false>(columns, first, step);
    }
    __device__ void store_sums(T *to, int hidden, int first, int step) const {
#pragma unroll
        for (int p = 0; p < COUNT; ++p) {
            gpu_pack<T, N> out;
#pragma unroll
            for (int j = 0; j < N; ++j) {
                out.at[j] = gpu_round<T>(value(p, j));
            }
            if (first + p * step < hidden) {
                gpu_store<T, N>(to, first + p * step, out);
            }
        }
    }
    // `weight` NULL: ones; `held`: the packs' weights where they are there already.
    __device__ void store_y(T *to, const T *weight, const gpu_pack<T, N> *held, int hidden,
                            float scale, int first, int step) const {
        gpu_pack<T, N> w;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            w.at[j] = gpu_round<T>(1.0f);
        }
#pragma unroll
        for (int p = 0; p < COUNT; ++p) {
            const int i = first + p * step;
            if (i < hidden) {
                w = !weight ? w : held ? held[p] : gpu_load<T, N>(weight, i);
                gpu_pack<T, N> out;
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    out.at[j] = gpu_round<T>(value(p, j) * scale * gpu_float(w.at[j]));
                }
                gpu_store<T, N>(to, i, out);
            }
        }
    }
};

// A block a row. Some rows: the weights are loaded before the kernel waits for its input: beside
// the traffic of the next product's weights a load takes 1 us. Why a block has no second row: 75 %
// of a copy, as blocks that stay need more registers and wait for their sums together; rows that
// come with new blocks are always on their way. COUNT: packs of a thread; one takes 32 registers,
// four take 98.
template <typename T, int N, int COUNT, bool ADDS, bool IS_SOME>
__global__ void __launch_bounds__(MAX_THREADS) rms_norm_kernel(operands all) {
    __shared__ float room[MAX_THREADS / 32];
    const int hidden = static_cast<int>(all.hidden);
    const int columns = static_cast<int>(all.columns);
    const int step = static_cast<int>(blockDim.x) * N;
    const int first = static_cast<int>(threadIdx.x) * N;
    const T *weight = static_cast<const T *>(all.weight);
    kept_row<T, N, COUNT, ADDS> kept;
    gpu_let_next_begin();
    gpu_pack<T, N> held[IS_SOME ? COUNT : 1];
    if (IS_SOME && weight) {
        kept.load_packs(weight, hidden, first, step, held);
    }
    gpu_wait_for_inputs();
    const row_of<T> row = find_row<T>(all, blockIdx.x);
    kept.load(row, hidden, first, step);
    if (ADDS) {
        kept.store_sums(row.sums, hidden, first, step);
    }
    const float squares = kept.squares(columns, hidden, first, step);
    const float scale = scale_of(all, gpu_block_sum(squares, room));
    kept.store_y(row.y, weight, IS_SOME ? held : nullptr, hidden, scale, first, step);
}

// A warp a row, of at most 32 · N · COUNT elements.
template <typename T, int N, int COUNT, bool ADDS>
__global__ void __launch_bounds__(WARP_ROWS * 32) warp_rms_norm_kernel(operands all) {
    const int hidden = static_cast<int>(all.hidden);
    const int columns = static_cast<int>(all.columns);
    const int first = static_cast<int>(threadIdx.x) * N;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t number = static_cast<int64_t>(blockIdx.x) * WARP_ROWS + threadIdx.y;
         number < all.rows; number += static_cast<int64_t>(gridDim.x) * WARP_ROWS) {
        const row_of<T> row = find_row<T>(all, number);
        kept_row<T, N, COUNT, ADDS> kept;
        kept.load(row, hidden, first, 32 * N);
        if (ADDS) {
            kept.store_sums(row.sums, hidden, first, 32 * N);
        }
        const float scale =
            scale_of(all, gpu_warp_sum(kept.squares(columns, hidden, first, 32 * N)));
        kept.store_y(row.y, static_cast<const T *>(all.weight), nullptr, hidden, scale, first,
                     32 * N);
    }
}

// Rows of any length and alignment: every thread reads twice.
template <typename T> __global__ void long_rms_norm_kernel(operands all) {
    __shared__ float room[MAX_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const row_of<T> row = find_row<T>(all, blockIdx.x);
    const auto value_at = [&](int64_t i) {
        return gpu_float(row.x[i]) + (row.residual ? gpu_float(row.residual[i]) : 0.0f);
    };
    float squares = 0;
    for (int64_t i = threadIdx.x; i < all.columns; i += blockDim.x) {
        squares += value_at(i) * value_at(i);
    }
    const float scale = scale_of(all, gpu_block_sum(squares, room));
    for (int64_t i = threadIdx.x; i < all.hidden; i += blockDim.x) {
        const float value = value_at(i);
        if (row.sums) {
            row.sums[i] = gpu_round<T>(value);
        }
        row.y[i] = gpu_round<T>(
            value * (all.weight ? scale * gpu_load_any(all.weight, all.weight_dtype, i) : scale));
    }
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_status status = gpu_check_floats(site, 0);
    return status == BERTH_OK ? gpu_check_same(site, INPUT_RESIDUAL, INPUT_X) : status;
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

template <typename T, int COUNT, bool ADDS>
berth_status start_warps(const norm *op, const operands &all) {
    const unsigned blocks = gpu_ceil(all.rows, WARP_ROWS);
    const unsigned most = static_cast<unsigned>(op->gpu->multiprocessors[op->device]) * 16;
    const gpu_grid grid = {dim3(blocks < most ? blocks : most), dim3(32, WARP_ROWS), 0};
    return gpu_run(op, "rms_norm", grid, warp_rms_norm_kernel<T, gpu_wide<T>, COUNT, ADDS>, all);
}

template <typename T, bool ADDS>
berth_status start(const norm *op, const operands &all, bool is_vector) {
    constexpr int N = gpu_wide<T>;
    const int64_t packs = all.hidden / N;
    if (!is_vector || packs > MAX_THREADS * PACKS) {
        const gpu_grid grid = {dim3(static_cast<unsigned>(all.rows)), dim3(256), 0};
        return gpu_run(op, "rms_norm", grid, long_rms_norm_kernel<T>, all);
    }
    if (packs <= 32) {
        return start_warps<T, 1, ADDS>(op, all);
    }
    if (packs <= 128 && all.rows >= FEW_ROWS) {
        return start_warps<T, 4, ADDS>(op, all);
    }
    // Few rows: as many threads as packs. Many: as few as can keep the row, so that more rows are
    // on their way at once.
    const int64_t wanted = all.rows < FEW_ROWS ? packs : (packs + PACKS - 1) / PACKS;
    const int64_t even = (wanted + 31) / 32 * 32;
    const int64_t threads = even < MAX_THREADS ? even : MAX_THREADS;
    const gpu_grid grid = {dim3(static_cast<unsigned>(all.rows)),
                           dim3(static_cast<unsigned>(threads)), 0};
    return threads >= packs
               ? gpu_run(op, "rms_norm", grid, rms_norm_kernel<T, N, 1, ADDS, true>, all)
           : all.rows <= SOME_ROWS
               ? gpu_run(op, "rms_norm", grid, rms_norm_kernel<T, N, PACKS, ADDS, true>, all)
               : gpu_run(op, "rms_norm", grid, rms_norm_kernel<T, N, PACKS, ADDS, false>, all);
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
        const bool is_vector = is_wide(all, dtype, gpu_wide<T>);
        return all.residual.data ? start<T, true>(op, all, is_vector)
                                 : start<T, false>(op, all, is_vector);
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
