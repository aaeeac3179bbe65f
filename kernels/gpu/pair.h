// SPDX-License-Identifier: Apache-2.0
// Ops on two tensors of one type and shape on a GPU, element by element, with one rounding. A
// kernel is a struct with `float operator()(float a, float b)` and a table.
#ifndef BERTH_KERNELS_GPU_PAIR_H
#define BERTH_KERNELS_GPU_PAIR_H

#include "launch.h"

#define GPU_PAIR_THREADS 256

template <typename T, int N, typename F>
static __global__ void gpu_pair_kernel(F combine, gpu_rows a, gpu_rows b, gpu_rows y, int64_t rows,
                                       int64_t width) {
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t row = blockIdx.y; row < rows && i < width; row += gridDim.y) {
        const gpu_pack<T, N> first = gpu_load<T, N>(gpu_row<const T>(a, row), i);
        const gpu_pack<T, N> second = gpu_load<T, N>(gpu_row<const T>(b, row), i);
        gpu_pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            out.at[j] = gpu_round<T>(combine(gpu_float(first.at[j]), gpu_float(second.at[j])));
        }
        gpu_store<T, N>(gpu_row<T>(y, row), i, out);
    }
}

static inline berth_status gpu_pair_supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_floats(site, 0);
}

template <typename F> static berth_status gpu_pair_forward(void *self, const berth_op_args *args) {
    constexpr int64_t MOST = 65535; // of a grid's second dimension
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *out = args->outputs[0];
    const gpu_rows a = gpu_rows_of(args->inputs[0]);
    const gpu_rows b = gpu_rows_of(args->inputs[1]);
    const gpu_rows y = gpu_rows_of(out);
    const int64_t rows = berth_tensor_row_count(out);
    const int64_t width = out->ndim > 0 ? out->shape[out->ndim - 1] : 1;
    if (rows == 0 || width == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(out->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        constexpr int N = gpu_wide<T>;
        const bool is_wide =
            width % N == 0 && gpu_is_aligned(a) && gpu_is_aligned(b) && gpu_is_aligned(y);
        const gpu_grid grid = {dim3(gpu_ceil(is_wide ? width / N : width, GPU_PAIR_THREADS),
                                    static_cast<unsigned>(rows < MOST ? rows : MOST)),
                               dim3(GPU_PAIR_THREADS), 0};
        return is_wide ? gpu_run(op, "a pair", grid, gpu_pair_kernel<T, N, F>, F{}, a, b, y, rows,
                                 width)
                       : gpu_run(op, "a pair", grid, gpu_pair_kernel<T, 1, F>, F{}, a, b, y, rows,
                                 width);
    });
}

#define GPU_PAIR_SLOTS(combine)                                                                    \
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC, .supports = gpu_pair_supports,      \
    .create = gpu_create, .forward = gpu_pair_forward<combine>, .destroy = gpu_destroy

#endif
