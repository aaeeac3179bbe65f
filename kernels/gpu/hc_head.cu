// SPDX-License-Identifier: Apache-2.0
// hc_head on a GPU: a block of threads a token (hyper.h).
#include "hyper.h"

namespace {

enum { HIDDEN_STATES, HC_FN };

struct head : gpu_op {
    float rms_eps;
    float eps;
};

template <typename T>
__global__ void head_kernel(gpu_hyper_operands all, float rms_eps, float eps) {
    __shared__ float gates[GPU_HYPER_STREAMS];
    __shared__ float room[GPU_HYPER_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    gpu_hyper_products<T>(all, all.streams, rms_eps, room, gates);
    if (threadIdx.x < all.streams) {
        const int i = threadIdx.x;
        gates[i] = gpu_hyper_sigmoid(gates[i] * all.scale[0] + all.base[i]) + eps;
    }
    __syncthreads();
    gpu_hyper_mix<T>(all, gates);
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_hyper_supports(site, HIDDEN_STATES);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<head>(site, device, out_self);
    if (status == BERTH_OK) {
        head *self = static_cast<head *>(*out_self);
        self->rms_eps = static_cast<float>(berth_site_attribute(site, "rms_norm_eps")->f64);
        self->eps = static_cast<float>(berth_site_attribute(site, "hc_eps")->f64);
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const head *op = static_cast<const head *>(self);
    const berth_tensor *hidden = args->inputs[HIDDEN_STATES];
    gpu_hyper_operands all = gpu_hyper_operands_of(hidden, args->inputs + HC_FN);
    all.input = berth_gpu_data(args->outputs[0]);
    const int64_t tokens = berth_tensor_row_count(args->outputs[0]);
    const gpu_grid grid = {dim3(static_cast<unsigned>(tokens)), dim3(GPU_HYPER_THREADS), 0};
    return tokens == 0 ? BERTH_OK : gpu_with_type(hidden->dtype, [&](auto type) {
        return gpu_run(op, "hc_head", grid, head_kernel<typename decltype(type)::type>, all,
                       op->rms_eps, op->eps);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_hc_head;
const berth_op_impl berth_kernel_hc_head = {
    BERTH_GPU_KERNEL("hc_head"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
