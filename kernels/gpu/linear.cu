// SPDX-License-Identifier: Apache-2.0
// linear on a GPU, of any float types: y = x · weightᵀ + bias with products and sums in f32. Few
// rows: a warp an output, so that weights are read once. More: tiles in shared memory. It is the
// one that takes what faster kernels do not: f32 activations on 16-bit weights, odd sizes.
#include "tiles.h"

namespace {

constexpr int WARPS = 8;   // of a block, few rows
constexpr int MAX_FEW = 8; // rows

enum { X, WEIGHT, BIAS };

struct operands {
    gpu_rows x;
    const void *weight; // [outputs, depth]
    const void *bias;   // NULL: absent
    berth_dtype bias_dtype;
    gpu_rows y;
    int rows;
    int outputs;
    int depth;
};

template <typename T> __device__ void finish(const operands &all, int row, int output, float sum) {
    const float bias = all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f;
    gpu_row<T>(all.y, row)[output] = gpu_round<T>(sum + bias);
}

// ROWS rows at most; N elements of the depth at once.
template <typename T, typename W, int ROWS, int N> __global__ void few_rows_kernel(operands all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int output = static_cast<int>(blockIdx.x) * WARPS + threadIdx.y;
    if (output >= all.outputs) {
        return;
    }
    const W *weight = static_cast<const W *>(all.weight) + static_cast<int64_t>(output) * all.depth;
    float sums[ROWS] = {};
    for (int k = threadIdx.x * N; k < all.depth; k += 32 * N) {
        const gpu_pack<W, N> w = gpu_load<W, N>(weight, k);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (row < all.rows) {
                const gpu_pack<T, N> x = gpu_load<T, N>(gpu_row<const T>(all.x, row), k);
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    sums[row] += gpu_float(w.at[j]) * gpu_float(x.at[j]);
                }
            }
        }
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        const float sum = gpu_warp_sum(sums[row]);
        if (row < all.rows && threadIdx.x == 0) {
            finish<T>(all, row, output, sum);
        }
    }
}

template <typename T, typename W> __global__ void tiles_kernel(operands all) {
    __shared__ gpu_tile_room room;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int first_output = static_cast<int>(blockIdx.x) * GPU_TILE;
    const int first_row = static_cast<int>(blockIdx.y) * GPU_TILE;
    const W *weight =
        static_cast<const W *>(all.weight) + static_cast<int64_t>(first_output) * all.depth;
    gpu_tile_product(
        all.depth, &room,
        [&](int row, int k) {
            return first_row + row < all.rows
                       ? gpu_float(gpu_row<const T>(all.x, first_row + row)[k])
                       : 0.0f;
        },
        [&](int output, int k) {
            return first_output + output < all.outputs
                       ? gpu_float(weight[static_cast<int64_t>(output) * all.depth + k])
                       : 0.0f;
        },
        [&](int row, int output, float sum) {
            if (first_row + row < all.rows && first_output + output < all.outputs) {
                finish<T>(all, first_row + row, first_output + output, sum);
            }
        });
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_floats(site, 0);
}

operands operands_of(const berth_op_args *args) {
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *bias = args->inputs[BIAS];
    operands all = {};
    all.x = gpu_rows_of(args->inputs[X]);
    all.weight = berth_gpu_data(weight);
    all.bias = bias ? berth_gpu_data(bias) : nullptr;
    all.bias_dtype = bias ? bias->dtype : weight->dtype;
    all.y = gpu_rows_of(args->outputs[0]);
    all.rows = static_cast<int>(berth_tensor_row_count(args->inputs[X]));
    all.outputs = static_cast<int>(weight->shape[0]);
    all.depth = static_cast<int>(weight->shape[1]);
    return all;
}

template <typename T, typename W, int ROWS>
berth_status start_few(const gpu_op *op, const operands &all) {
    constexpr int N = gpu_wide<W> < gpu_wide<T> ? gpu_wide<W> : gpu_wide<T>;
    const bool is_wide = all.depth % gpu_wide<W> == 0 && gpu_is_aligned(all.x) &&
                         reinterpret_cast<uintptr_t>(all.weight) % 16 == 0;
    const gpu_grid grid = {dim3(gpu_ceil(all.outputs, WARPS)), dim3(32, WARPS), 0};
    return is_wide ? gpu_run(op, "linear", grid, few_rows_kernel<T, W, ROWS, N>, all)
                   : gpu_run(op, "linear", grid, few_rows_kernel<T, W, ROWS, 1>, all);
}

template <typename T, typename W> berth_status start(const gpu_op *op, const operands &all) {
    if (all.rows == 1) {
        return start_few<T, W, 1>(op, all);
    }
    if (all.rows <= MAX_FEW) {
        return start_few<T, W, MAX_FEW>(op, all);
    }
    const gpu_grid grid = {dim3(gpu_ceil(all.outputs, GPU_TILE), gpu_ceil(all.rows, GPU_TILE)),
                           dim3(GPU_TILE_THREADS), 0};
    return gpu_run(op, "linear", grid, tiles_kernel<T, W>, all);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const operands all = operands_of(args);
    if (all.rows == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(args->inputs[X]->dtype, [&](auto x) {
        return gpu_with_type(args->inputs[WEIGHT]->dtype, [&](auto weight) {
            return start<typename decltype(x)::type, typename decltype(weight)::type>(op, all);
        });
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_linear;
const berth_op_impl berth_kernel_linear = {
    .size = sizeof(berth_op_impl),
    .op = "linear",
    .name = "gpu.linear",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
