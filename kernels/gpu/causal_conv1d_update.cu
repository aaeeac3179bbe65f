// SPDX-License-Identifier: Apache-2.0
// causal_conv1d_update on a GPU: causal_conv1d of sequences of one new row each.
#include "conv1d.h"

namespace {

enum { X, WEIGHT, BIAS, CONV_STATE_INDICES };

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_conv1d *op = static_cast<const gpu_conv1d *>(self);
    const berth_tensor *slots = args->inputs[CONV_STATE_INDICES];
    gpu_conv1d_call call = gpu_conv1d_begin(op, args, 1);
    call.sequences.slots = slots ? berth_gpu_data(slots) : nullptr;
    call.sequences.slots_dtype = slots ? slots->dtype : BERTH_DTYPE_I32;
    call.sequences.slot_gap = 1;
    call.sequences.count = static_cast<int>(call.tokens);
    return gpu_conv1d_run(op, call, args->inputs[X]->dtype);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_causal_conv1d_update;
const berth_op_impl berth_kernel_causal_conv1d_update = {
    BERTH_GPU_KERNEL("causal_conv1d_update"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = gpu_conv1d_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
