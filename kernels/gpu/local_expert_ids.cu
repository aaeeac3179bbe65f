// SPDX-License-Identifier: Apache-2.0
// local_expert_ids on a GPU: a thread a choice.
#include "launch.h"

namespace {

constexpr int THREADS = 256;

struct numbering : gpu_op {
    int64_t first;
    int64_t count;
};

template <typename I>
__global__ void ids_kernel(const I *ids, I *y, int64_t choices, int64_t first, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (i < choices) {
        const int64_t local = ids[i] - first;
        y[i] = static_cast<I>(local < 0 || local >= count ? -1 : local);
    }
}

template <typename I>
berth_status start(const numbering *op, const berth_op_args *args, int64_t choices) {
    const gpu_grid grid = {dim3(gpu_ceil(choices, THREADS)), dim3(THREADS), 0};
    return gpu_run(op, "local_expert_ids", grid, ids_kernel<I>,
                   static_cast<const I *>(berth_gpu_data(args->inputs[0])),
                   static_cast<I *>(berth_gpu_data(args->outputs[0])), choices, op->first,
                   op->count);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<numbering>(site, device, out_self);
    if (status == BERTH_OK) {
        numbering *self = static_cast<numbering *>(*out_self);
        self->first = berth_site_attribute(site, "first")->i64;
        self->count = berth_site_attribute(site, "count")->i64;
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const numbering *op = static_cast<const numbering *>(self);
    const berth_tensor *ids = args->inputs[0];
    const int64_t width = ids->ndim > 0 ? ids->shape[ids->ndim - 1] : 1;
    const int64_t choices = berth_tensor_row_count(ids) * width;
    return choices == 0                    ? BERTH_OK
           : ids->dtype == BERTH_DTYPE_I64 ? start<int64_t>(op, args, choices)
                                           : start<int32_t>(op, args, choices);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_local_expert_ids;
const berth_op_impl berth_kernel_local_expert_ids = {
    BERTH_GPU_KERNEL("local_expert_ids"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
