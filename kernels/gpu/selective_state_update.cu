// SPDX-License-Identifier: Apache-2.0
// selective_state_update on a GPU: scan.h over sequences of one new row each.
#include "scan.h"

namespace {

enum { X, DT, A, B, C, D, Z, DT_BIAS, STATE_BATCH_INDICES };

struct updater : gpu_op {
    int is_softplus;
};

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_scan_check(site, A);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<updater>(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<updater *>(*out_self)->is_softplus =
            berth_site_attribute(site, "dt_softplus")->i64 != 0;
    }
    return status;
}

// Channels are those of all heads, one head after the other.
gpu_scan_field field_of(const berth_tensor *x) {
    if (!x) {
        return gpu_scan_field{nullptr, 0, 0, 0, 1};
    }
    return gpu_scan_field{berth_gpu_data(x), x->strides[0], x->ndim == 3 ? x->strides[1] : 0, 1,
                          static_cast<int>(x->shape[x->ndim - 1])};
}

gpu_scan_selector selector_of(const berth_tensor *x) {
    return gpu_scan_selector{berth_gpu_data(x), x->strides[0], x->ndim == 3 ? x->strides[1] : 0, 1};
}

berth_status forward(void *self, const berth_op_args *args) {
    const updater *op = static_cast<const updater *>(self);
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *a = args->inputs[A];
    const berth_tensor *slots = args->inputs[STATE_BATCH_INDICES];
    const int64_t groups = x->ndim == 3 ? args->inputs[B]->shape[1] : 1;
    gpu_scan_call call = {};
    call.sequences.slots = slots ? berth_gpu_data(slots) : nullptr;
    call.sequences.slots_dtype = slots ? slots->dtype : BERTH_DTYPE_I32;
    call.sequences.slot_gap = 1;
    call.sequences.count = static_cast<int>(x->shape[0]);
    call.x = field_of(x);
    call.delta = field_of(args->inputs[DT]);
    call.z = field_of(args->inputs[Z]);
    call.y = field_of(args->outputs[0]);
    call.b = selector_of(args->inputs[B]);
    call.c = selector_of(args->inputs[C]);
    call.decay = gpu_scan_vector_of(a);
    call.direct = gpu_scan_vector_of(args->inputs[D]);
    call.bias = gpu_scan_vector_of(args->inputs[DT_BIAS]);
    call.state = berth_gpu_data(args->states[0]);
    call.state_dtype = args->states[0]->dtype;
    call.channels = x->shape[x->ndim - 1] * (x->ndim == 3 ? x->shape[1] : 1);
    call.channels_per_group = call.channels / groups;
    call.states = static_cast<int>(a->shape[a->ndim - 1]);
    call.is_softplus = op->is_softplus;
    return gpu_scan_run(op, call, x->dtype);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_selective_state_update;
const berth_op_impl berth_kernel_selective_state_update = {
    BERTH_GPU_KERNEL("selective_state_update"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
