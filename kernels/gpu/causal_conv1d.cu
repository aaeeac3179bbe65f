// SPDX-License-Identifier: Apache-2.0
// causal_conv1d on a GPU: every channel of a sequence convolved with its own taps.
#include "conv1d.h"

namespace {

enum { X, WEIGHT, BIAS, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE };

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_conv1d *op = static_cast<const gpu_conv1d *>(self);
    const gpu_sequence_inputs inputs = {args->inputs[QUERY_START_LOC], args->inputs[CACHE_INDICES],
                                        args->inputs[HAS_INITIAL_STATE]};
    gpu_conv1d_call call = gpu_conv1d_begin(op, args, op->is_last);
    const berth_status status =
        gpu_sequences_open(op, args->batch, op->group, inputs, &call.sequences);
    return status == BERTH_OK ? gpu_conv1d_run(op, call, args->inputs[X]->dtype) : status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_causal_conv1d;
const berth_op_impl berth_kernel_causal_conv1d = {
    BERTH_GPU_KERNEL("causal_conv1d"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = gpu_conv1d_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
