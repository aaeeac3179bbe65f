// SPDX-License-Identifier: Apache-2.0
// scale_columns on a GPU: each column of x times a number of its own.
#include "each.h"

namespace {

enum { X, WEIGHT };

struct formula {
    gpu_rows x;
    const void *weight;
    berth_dtype dtype;

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        return gpu_float(gpu_row<const T>(x, row)[i]) * gpu_load_any(weight, dtype, i);
    }
};

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *weight = args->inputs[WEIGHT];
    const formula scale = {gpu_rows_of(args->inputs[X]), berth_gpu_data(weight), weight->dtype};
    return gpu_each_alike(op, scale, args);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_scale_columns;
const berth_op_impl berth_kernel_scale_columns = {
    BERTH_GPU_KERNEL("scale_columns"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = gpu_each_supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
