// SPDX-License-Identifier: Apache-2.0
// mhc_fused_post_pre on a GPU: mhc_post, then mhc_pre of its result.
#include "hyper.h"

namespace {

enum { X, RESIDUAL, POST_LAYER_MIX, COMB_RES_MIX, FN };
enum { RESIDUAL_CUR, POST_MIX_CUR };

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_hyper_supports(site, RESIDUAL);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_hyper *op = static_cast<const gpu_hyper *>(self);
    const berth_tensor *residual = args->outputs[RESIDUAL_CUR];
    const berth_status status = gpu_hyper_leave(op, args->inputs, residual);
    return status == BERTH_OK
               ? gpu_hyper_enter(op, residual, args->inputs + FN, args->outputs + POST_MIX_CUR)
               : status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mhc_fused_post_pre;
const berth_op_impl berth_kernel_mhc_fused_post_pre = {
    BERTH_GPU_KERNEL("mhc_fused_post_pre"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_hyper_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
