// SPDX-License-Identifier: Apache-2.0
// selective_scan on a GPU: scan.h over the tokens of each sequence.
#include "scan.h"

namespace {

enum { U, DELTA, A, B, C, D, Z, DELTA_BIAS, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE };

struct scanner : gpu_op {
    uint64_t group; // of caches
    int is_softplus;
    int is_last; // channels_last
};

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_scan_check(site, A);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<scanner>(site, device, out_self);
    if (status == BERTH_OK) {
        scanner *self = static_cast<scanner *>(*out_self);
        self->group = site->cache_group;
        self->is_softplus = berth_site_attribute(site, "delta_softplus")->i64 != 0;
        self->is_last = berth_site_attribute(site, "channels_last")->i64 != 0;
    }
    return status;
}

gpu_scan_field field_of(const scanner *op, const berth_tensor *x, int channels) {
    if (!x) {
        return gpu_scan_field{nullptr, 0, 0, 0, channels};
    }
    return gpu_scan_field{berth_gpu_data(x), op->is_last ? x->strides[0] : 1, 0,
                          op->is_last ? 1 : x->strides[0], channels};
}

gpu_scan_selector selector_of(const scanner *op, const berth_tensor *x) {
    void *data = berth_gpu_data(x);
    return !op->is_last
               ? gpu_scan_selector{data, 1, x->strides[0], x->strides[1]}
               : gpu_scan_selector{data, x->strides[0], x->ndim == 3 ? x->strides[1] : 0, 1};
}

int64_t groups_of(const scanner *op, const berth_tensor *b) {
    return !op->is_last ? b->shape[0] : b->ndim == 3 ? b->shape[1] : 1;
}

berth_status forward(void *self, const berth_op_args *args) {
    const scanner *op = static_cast<const scanner *>(self);
    const berth_tensor *u = args->inputs[U];
    const int channels = static_cast<int>(args->inputs[A]->shape[0]);
    const gpu_sequence_inputs inputs = {args->inputs[QUERY_START_LOC], args->inputs[CACHE_INDICES],
                                        args->inputs[HAS_INITIAL_STATE]};
    gpu_scan_call call = {};
    call.x = field_of(op, u, channels);
    call.delta = field_of(op, args->inputs[DELTA], channels);
    call.z = field_of(op, args->inputs[Z], channels);
    call.y = field_of(op, args->outputs[0], channels);
    call.b = selector_of(op, args->inputs[B]);
    call.c = selector_of(op, args->inputs[C]);
    call.decay = gpu_scan_vector_of(args->inputs[A]);
    call.direct = gpu_scan_vector_of(args->inputs[D]);
    call.bias = gpu_scan_vector_of(args->inputs[DELTA_BIAS]);
    call.state = berth_gpu_data(args->states[0]);
    call.state_dtype = args->states[0]->dtype;
    call.channels = channels;
    call.channels_per_group = channels / groups_of(op, args->inputs[B]);
    call.states = static_cast<int>(args->inputs[A]->shape[1]);
    call.is_softplus = op->is_softplus;
    const berth_status status =
        gpu_sequences_open(op, args->batch, op->group, inputs, &call.sequences);
    return status == BERTH_OK ? gpu_scan_run(op, call, u->dtype) : status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_selective_scan;
const berth_op_impl berth_kernel_selective_scan = {
    BERTH_GPU_KERNEL("selective_scan"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
