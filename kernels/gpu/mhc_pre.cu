// SPDX-License-Identifier: Apache-2.0
// mhc_pre on a GPU.
#include "hyper.h"

namespace {

enum { RESIDUAL, FN };

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_hyper_supports(site, RESIDUAL);
}

berth_status forward(void *self, const berth_op_args *args) {
    return gpu_hyper_enter(static_cast<const gpu_hyper *>(self), args->inputs[RESIDUAL],
                           args->inputs + FN, args->outputs);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mhc_pre;
const berth_op_impl berth_kernel_mhc_pre = {
    BERTH_GPU_KERNEL("mhc_pre"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_hyper_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
