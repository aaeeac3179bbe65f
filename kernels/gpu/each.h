// SPDX-License-Identifier: Apache-2.0
// Ops on a GPU whose result has a formula for each element, by row and column. A formula is a
// struct with `template <typename T> float at(int64_t row, int64_t i)` on the device, where T is
// the type of x; the result is rounded once, here.
#ifndef BERTH_KERNELS_GPU_EACH_H
#define BERTH_KERNELS_GPU_EACH_H

#include "launch.h"

#define GPU_EACH_THREADS 256

template <typename T, typename Y, typename F>
static __global__ void gpu_each_kernel(F formula, gpu_rows y, int64_t rows, int64_t width) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t row = blockIdx.y; row < rows && i < width; row += gridDim.y) {
        gpu_row<Y>(y, row)[i] = gpu_round<Y>(formula.template at<T>(row, i));
    }
}

// T: the type of x; Y: that of the result.
template <typename T, typename Y, typename F>
static berth_status gpu_each(const gpu_op *op, const F &formula, const berth_tensor *out) {
    constexpr int64_t MOST = 65535; // of a grid's second dimension
    const int64_t rows = berth_tensor_row_count(out);
    const int64_t width = out->ndim > 0 ? out->shape[out->ndim - 1] : 1;
    if (rows == 0 || width == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {
        dim3(gpu_ceil(width, GPU_EACH_THREADS), static_cast<unsigned>(rows < MOST ? rows : MOST)),
        dim3(GPU_EACH_THREADS), 0};
    return gpu_run(op, "a formula", grid, gpu_each_kernel<T, Y, F>, formula, gpu_rows_of(out), rows,
                   width);
}

// Of a formula whose result has the type of x, input 0.
template <typename F>
static berth_status gpu_each_alike(const gpu_op *op, const F &formula, const berth_op_args *args) {
    return gpu_with_type(args->inputs[0]->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return gpu_each<T, T>(op, formula, args->outputs[0]);
    });
}

// A site of floats whose input 0 has rows.
static inline berth_status gpu_each_supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_floats(site, 0);
}

#endif
