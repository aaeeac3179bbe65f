// SPDX-License-Identifier: Apache-2.0
// linear_silu_and_mul on CUDA, of 16 bits: one kernel for the rows of a large batch that decodes
// (product/gated.h); for fewer and for more linear's kernels, whose product goes through memory,
// and the activation. Where the one kernel does not pay it refuses the site, and the two ops stay.
#include <cuda/product/gated.h>
#include <cuda/product/linear.h>
#include <gpu/silu_and_mul.h>

namespace {

struct fast_gated : gpu_op {
    cuda_linear linear;
    berth_dim rows;    // of x
    int64_t row_bytes; // of the product
};

berth_status supports(const berth_op_site *site, const berth_device *device) {
    const berth_status status = cuda_linear_supports(site, device);
    if (status != BERTH_OK) {
        return status;
    }
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    const berth_value_type *weight = site->inputs[CUDA_LINEAR_WEIGHT];
    const int64_t both = cuda_const_dim(weight, 0);
    if (weight->dtype == BERTH_DTYPE_F32 || site->inputs[CUDA_LINEAR_X]->ndim != 2 ||
        both % 16 != 0) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "only rows of 16 bits, and a multiple of 16 outputs");
    }
    if (!gpu->groups[device->index] ||
        !cuda_gated_pays(gpu->multiprocessors[device->index], both / 2)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "this device gains nothing by it with %lld outputs",
                                 (long long)both);
    }
    return BERTH_OK;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<fast_gated>(site, device, out_self);
    if (status == BERTH_OK) {
        fast_gated *self = static_cast<fast_gated *>(*out_self);
        self->rows = site->inputs[CUDA_LINEAR_X]->dims[0];
        self->row_bytes = cuda_const_dim(site->inputs[CUDA_LINEAR_WEIGHT], 0) * 2;
        status = cuda_linear_open(self, site, &self->linear);
        if (status != BERTH_OK) {
            gpu_destroy(self);
        }
    }
    return status;
}

// The product behind what cuBLASLt takes.
uint64_t workspace(void *self, uint64_t tokens) {
    const fast_gated *op = static_cast<const fast_gated *>(self);
    return CUDA_LT_WORKSPACE + gpu_extent(op->rows, tokens) * static_cast<uint64_t>(op->row_bytes);
}

cuda_gated gated_of(const cuda_product &p, const berth_tensor *y) {
    cuda_gated all = {};
    all.rows = p.rows;
    all.outputs = p.outputs / 2;
    all.bytes = p.depth * 2;
    all.x = p.x;
    all.x_gap = p.x_gap * 2;
    all.weight = p.weight;
    all.bias = p.bias;
    all.y = berth_gpu_data(y);
    all.y_gap = p.rows > 1 ? y->strides[0] : all.outputs;
    return all;
}

berth_status forward(void *self, const berth_op_args *args) {
    const fast_gated *op = static_cast<const fast_gated *>(self);
    const berth_tensor *y = args->outputs[0];
    cuda_product product = cuda_linear_product(args, y);
    if (product.rows == 0) {
        return BERTH_OK;
    }
    const cuda_gated gated = gated_of(product, y);
    if (product.rows > CUDA_SOME_ROWS && cuda_gated_takes(gated)) {
        return cuda_gated_run(op, gated, product.dtype);
    }
    char *room = static_cast<char *>(berth_gpu_data(args->workspace));
    product.y = room + CUDA_LT_WORKSPACE;
    product.y_gap = product.outputs;
    const berth_status status = cuda_linear_run(op, op->linear, product, room);
    const gpu_rows both = {room + CUDA_LT_WORKSPACE, 1, op->row_bytes, 0};
    return status == BERTH_OK ? gpu_silu_and_mul_run(op, product.dtype, both, gpu_rows_of(y),
                                                     product.rows, gated.outputs)
                              : status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_linear_silu_and_mul_fast;
const berth_op_impl berth_kernel_linear_silu_and_mul_fast = {
    .size = sizeof(berth_op_impl),
    .op = "linear_silu_and_mul",
    .name = "cuda.linear_silu_and_mul",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
