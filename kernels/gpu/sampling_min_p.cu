// SPDX-License-Identifier: Apache-2.0
// sampling_min_p on a GPU: a block a row (sampling.h).
#include "sampling.h"

namespace {

enum { LOGITS, MIN_P };

__global__ void min_p_kernel(gpu_sampling_rows all, const float *min_p) {
    __shared__ float room[GPU_SAMPLING_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const float *from = gpu_sampling_from(all);
    float *to = gpu_sampling_to(all);
    const float largest = gpu_sampling_largest(from, all.count, room);
    const float sum = gpu_sampling_sum(from, all.count, largest, room);
    const float least = gpu_mul_rn(min_p[blockIdx.x], gpu_div_rn(1.0f, sum));
    for (int64_t i = threadIdx.x; i < all.count; i += GPU_SAMPLING_THREADS) {
        to[i] = gpu_div_rn(expf(from[i] - largest), sum) < least ? -INFINITY : from[i];
    }
}

berth_status forward(void *self, const berth_op_args *args) {
    return gpu_sampling_run(static_cast<const gpu_op *>(self), args, min_p_kernel,
                            gpu_sampling_rows_of(args), gpu_sampling_option(args, MIN_P));
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_sampling_min_p;
const berth_op_impl berth_kernel_sampling_min_p = {
    BERTH_GPU_KERNEL("sampling_min_p"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
