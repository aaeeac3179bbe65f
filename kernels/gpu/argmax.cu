// SPDX-License-Identifier: Apache-2.0
// argmax on a GPU: a block a row; of equal elements the first counts, whoever finds it.
#include "launch.h"

#include <math.h>

namespace {

constexpr int THREADS = 1024;

struct best {
    float value;
    int column; // -1: nothing above minus infinity yet
};

__device__ best better(const best &a, const best &b) {
    const bool is_first = a.value > b.value || (a.value == b.value && a.column < b.column);
    return b.column < 0 || (a.column >= 0 && is_first) ? a : b;
}

__device__ best best_of_warp(best mine) {
    for (int mask = 16; mask > 0; mask /= 2) {
        const best other = {gpu_shuffle_xor(mine.value, mask), gpu_shuffle_xor(mine.column, mask)};
        mine = better(mine, other);
    }
    return mine;
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) argmax_kernel(gpu_rows x, int32_t *y, int width) {
    __shared__ best room[THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const T *row = gpu_row<const T>(x, blockIdx.x);
    best mine = {-INFINITY, -1};
#pragma unroll 2
    for (int i = threadIdx.x * N; i < width; i += THREADS * N) {
        const gpu_pack<T, N> pack = gpu_load<T, N>(row, i);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const float value = gpu_float(pack.at[j]);
            if (value > mine.value) {
                mine = best{value, i + j};
            }
        }
    }
    mine = best_of_warp(mine);
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = best_of_warp(room[threadIdx.x]);
        if (threadIdx.x == 0) {
            y[blockIdx.x] = isfinite(mine.value) ? mine.column : -1;
        }
    }
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_status status = gpu_check_floats(site, 0);
    return status == BERTH_OK ? gpu_check_rank(site, 0) : status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *x = args->inputs[0];
    const gpu_rows rows = gpu_rows_of(x);
    const int64_t count = berth_tensor_row_count(x);
    const int width = static_cast<int>(x->shape[x->ndim - 1]);
    int32_t *y = static_cast<int32_t *>(berth_gpu_data(args->outputs[0]));
    if (count == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(count)), dim3(THREADS), 0};
    return gpu_with_type(x->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        constexpr int N = gpu_wide<T>;
        return width % N == 0 && gpu_is_aligned(rows)
                   ? gpu_run(op, "argmax", grid, argmax_kernel<T, N>, rows, y, width)
                   : gpu_run(op, "argmax", grid, argmax_kernel<T, 1>, rows, y, width);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_argmax;
const berth_op_impl berth_kernel_argmax = {
    .size = sizeof(berth_op_impl),
    .op = "argmax",
    .name = "gpu.argmax",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
