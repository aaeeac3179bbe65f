// SPDX-License-Identifier: Apache-2.0
// select_rows on a GPU: y[r] = x[rows[r]]. A block a row of y; bits are copied, so the type is only
// a width. A row that is not in x becomes all ones, which is NaN in every type.
#include "launch.h"

namespace {

constexpr int THREADS = 256;

enum { X, ROWS };

struct operands {
    gpu_rows x;
    gpu_rows y;
    const void *rows;
    berth_dtype dtype;
    int64_t count; // steps of x's first dimension
    int64_t width; // of a row, in units of U
};

template <typename U> __global__ void select_rows_kernel(operands all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int64_t inner = all.y.inner;
    const int64_t r = blockIdx.x / inner;
    const int64_t source = gpu_integer(all.rows, all.dtype, r);
    const bool is_there = source >= 0 && source < all.count;
    const U *from = gpu_row<const U>(all.x, (is_there ? source : 0) * inner + blockIdx.x % inner);
    U *to = gpu_row<U>(all.y, blockIdx.x);
    U ones;
    memset(&ones, 0xff, sizeof ones);
    for (int64_t i = threadIdx.x; i < all.width; i += THREADS) {
        to[i] = is_there ? from[i] : ones;
    }
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, X);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    const int64_t bytes = y->shape[y->ndim - 1] * BERTH_DTYPE_BITS(y->dtype) / 8;
    const int64_t rows = berth_tensor_row_count(y);
    operands all = {gpu_rows_of(x),
                    gpu_rows_of(y),
                    berth_gpu_data(args->inputs[ROWS]),
                    args->inputs[ROWS]->dtype,
                    x->shape[0],
                    bytes / 2};
    if (rows == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows)), dim3(THREADS), 0};
    if (bytes % 16 == 0 && gpu_is_aligned(all.x) && gpu_is_aligned(all.y)) {
        all.width = bytes / 16;
        return gpu_run(op, "select_rows", grid, select_rows_kernel<uint4>, all);
    }
    return gpu_run(op, "select_rows", grid, select_rows_kernel<uint16_t>, all);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_select_rows;
const berth_op_impl berth_kernel_select_rows = {
    .size = sizeof(berth_op_impl),
    .op = "select_rows",
    .name = "gpu.select_rows",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
