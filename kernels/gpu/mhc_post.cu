// SPDX-License-Identifier: Apache-2.0
// mhc_post on a GPU: an element a thread.
#include "hyper.h"

namespace {

enum { X, RESIDUAL };

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, RESIDUAL);
}

berth_status forward(void *self, const berth_op_args *args) {
    return gpu_hyper_leave(static_cast<const gpu_op *>(self), args->inputs, args->outputs[0]);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mhc_post;
const berth_op_impl berth_kernel_mhc_post = {
    BERTH_GPU_KERNEL("mhc_post"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
