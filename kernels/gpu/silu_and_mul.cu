// SPDX-License-Identifier: Apache-2.0
// silu_and_mul on a GPU: y[t, i] = silu(x[t, i]) · x[t, d + i] for x [..., 2d]; one pack of
// elements a thread. Computed in f32, silu rounded to y's type before the product as in the
// reference.
#include "launch.h"

namespace {

constexpr int THREADS = 256;

template <typename T, int N>
__global__ void silu_and_mul_kernel(gpu_rows x, gpu_rows y, int64_t rows, int64_t width) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int64_t packs = width / N;
    const int64_t number = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    const int64_t row = number / packs;
    if (row >= rows) {
        return;
    }
    const int64_t i = (number - row * packs) * N;
    const T *from = gpu_row<const T>(x, row);
    const gpu_pack<T, N> gates = gpu_load<T, N>(from, i);
    const gpu_pack<T, N> ups = gpu_load<T, N>(from, width + i);
    gpu_pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const float gate = gpu_float(gates.at[j]);
        const T silu = gpu_round<T>(gate / (1.0f + expf(-gate)));
        out.at[j] = gpu_round<T>(gpu_float(silu) * gpu_float(ups.at[j]));
    }
    gpu_store<T, N>(gpu_row<T>(y, row), i, out);
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_status status = gpu_check_floats(site, 0);
    return status == BERTH_OK ? gpu_check_rank(site, 0) : status;
}

template <typename T>
berth_status start(const gpu_op *op, const berth_tensor *x, const berth_tensor *y) {
    constexpr int N = gpu_wide<T>;
    const int64_t rows = berth_tensor_row_count(y);
    const int64_t width = y->shape[y->ndim - 1];
    const gpu_rows from = gpu_rows_of(x);
    const gpu_rows to = gpu_rows_of(y);
    if (rows == 0 || width == 0) {
        return BERTH_OK;
    }
    const bool is_wide = width % N == 0 && gpu_is_aligned(from) && gpu_is_aligned(to);
    const gpu_grid grid = {dim3(gpu_ceil(rows * (is_wide ? width / N : width), THREADS)),
                           dim3(THREADS), 0};
    return is_wide
               ? gpu_run(op, "silu_and_mul", grid, silu_and_mul_kernel<T, N>, from, to, rows, width)
               : gpu_run(op, "silu_and_mul", grid, silu_and_mul_kernel<T, 1>, from, to, rows,
                         width);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    return gpu_with_type(args->inputs[0]->dtype, [&](auto type) {
        return start<typename decltype(type)::type>(op, args->inputs[0], args->outputs[0]);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_silu_and_mul;
const berth_op_impl berth_kernel_silu_and_mul = {
    .size = sizeof(berth_op_impl),
    .op = "silu_and_mul",
    .name = "gpu.silu_and_mul",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
