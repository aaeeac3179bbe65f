// SPDX-License-Identifier: Apache-2.0
// linear on CUDA where activations and weights have one type: own kernels for few and for some rows
// of 16 bits, cuBLASLt for the rest. Products in f32, without TF32. What it does not take is left
// to gpu.linear.
#include <cuda/product/linear.h>

namespace {

struct fast_linear : gpu_op {
    cuda_linear linear;
};

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<fast_linear>(site, device, out_self);
    if (status == BERTH_OK) {
        fast_linear *self = static_cast<fast_linear *>(*out_self);
        status = cuda_linear_open(self, site, &self->linear);
        if (status != BERTH_OK) {
            gpu_destroy(self);
        }
    }
    return status;
}

uint64_t workspace(void *, uint64_t) {
    return CUDA_LT_WORKSPACE;
}

berth_status forward(void *self, const berth_op_args *args) {
    const fast_linear *op = static_cast<const fast_linear *>(self);
    const cuda_product product = cuda_linear_product(args, args->outputs[0]);
    return product.rows == 0
               ? BERTH_OK
               : cuda_linear_run(op, op->linear, product, berth_gpu_data(args->workspace));
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_linear_fast;
const berth_op_impl berth_kernel_linear_fast = {
    .size = sizeof(berth_op_impl),
    .op = "linear",
    .name = "cuda.linear",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = cuda_linear_supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
