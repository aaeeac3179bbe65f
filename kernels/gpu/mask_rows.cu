// SPDX-License-Identifier: Apache-2.0
// mask_rows on a GPU: zeros in place of the rows that a mask names. A block a row; bits are copied,
// so the type is only a width.
#include "launch.h"

namespace {

constexpr int THREADS = 128;

enum { X, MASK };

__global__ void mask_kernel(gpu_rows x, gpu_rows y, const uint8_t *mask, int64_t bytes) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const bool is_masked = mask[blockIdx.x] != 0;
    const uint8_t *from = gpu_row<const uint8_t>(x, blockIdx.x);
    uint8_t *to = gpu_row<uint8_t>(y, blockIdx.x);
    for (int64_t i = threadIdx.x; i < bytes; i += THREADS) {
        to[i] = is_masked ? uint8_t{0} : from[i];
    }
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, X);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *x = args->inputs[X];
    const uint8_t *mask = static_cast<const uint8_t *>(berth_gpu_data(args->inputs[MASK]));
    const int64_t bytes = x->shape[x->ndim - 1] * BERTH_DTYPE_BITS(x->dtype) / 8;
    const int64_t rows = berth_tensor_row_count(x);
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows)), dim3(THREADS), 0};
    return rows == 0 ? BERTH_OK
                     : gpu_run(op, "mask_rows", grid, mask_kernel, gpu_rows_of(x),
                               gpu_rows_of(args->outputs[0]), mask, bytes);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mask_rows;
const berth_op_impl berth_kernel_mask_rows = {
    BERTH_GPU_KERNEL("mask_rows"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
