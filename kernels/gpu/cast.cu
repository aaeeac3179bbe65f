// SPDX-License-Identifier: Apache-2.0
// cast on a GPU: x in another type of floats, rounded to nearest.
#include "each.h"

namespace {

struct formula {
    gpu_rows x;

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        return gpu_float(gpu_row<const T>(x, row)[i]);
    }
};

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *y = args->outputs[0];
    const formula convert = {gpu_rows_of(args->inputs[0])};
    return gpu_with_type(args->inputs[0]->dtype, [&](auto from) {
        return gpu_with_type(y->dtype, [&](auto to) {
            return gpu_each<typename decltype(from)::type, typename decltype(to)::type>(op, convert,
                                                                                        y);
        });
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_cast;
const berth_op_impl berth_kernel_cast = {
    BERTH_GPU_KERNEL("cast"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = gpu_each_supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
