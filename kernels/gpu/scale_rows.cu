// SPDX-License-Identifier: Apache-2.0
// scale_rows on a GPU: everything of a token times that token's number.
#include "each.h"

namespace {

enum { X, SCALE };

struct formula {
    gpu_rows x;
    gpu_rows scale; // one number a row, of a type that is known at run time only
    berth_dtype dtype;

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        const void *its = gpu_row<const char>(scale, row / x.inner);
        return gpu_float(gpu_row<const T>(x, row)[i]) * gpu_load_any(its, dtype, 0);
    }
};

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *scale = args->inputs[SCALE];
    const formula times = {gpu_rows_of(args->inputs[X]), gpu_rows_of(scale), scale->dtype};
    return gpu_each_alike(op, times, args);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_scale_rows;
const berth_op_impl berth_kernel_scale_rows = {
    BERTH_GPU_KERNEL("scale_rows"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = gpu_each_supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
