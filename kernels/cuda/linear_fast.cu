// SPDX-License-Identifier: Apache-2.0
// linear on CUDA where activations and weights have one type: own kernels for few and for some rows
// of 16 bits, cuBLASLt for the rest. Products in f32, without TF32. What it does not take is left
// to gpu.linear.
#include <cuda/product/product.h>
#include <cuda/product/some.h>

namespace {

enum { X, WEIGHT, BIAS };

constexpr int64_t MAX_FEW_OUTPUTS = INT64_C(1) << 30;

struct fast_linear : gpu_op {
    const cuda_lt *lt;
    int has_few; // the own kernel takes the site
    cuda_some_plan some;
};

int64_t const_dim(const berth_value_type *type, uint32_t dim) {
    return type->dims[dim].b;
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    const berth_value_type *x = site->inputs[X];
    const berth_value_type *weight = site->inputs[WEIGHT];
    const berth_value_type *bias = site->inputs[BIAS];
    if (!gpu_is_float(x->dtype) || x->dtype != weight->dtype || (bias && bias->dtype != x->dtype)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "operands of different types");
    }
    if (!(site->parameter_mask >> WEIGHT & 1) || x->ndim > 2) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "only rows times a weight that stays");
    }
    if (const_dim(weight, 1) % 8 != 0 || const_dim(weight, 0) % 8 != 0 ||
        const_dim(weight, 0) > MAX_FEW_OUTPUTS) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "a weight of %lld by %lld: both must be multiples of 8",
                                 (long long)const_dim(weight, 0), (long long)const_dim(weight, 1));
    }
    return cuda_lt_check(site->host, device);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<fast_linear>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    fast_linear *self = static_cast<fast_linear *>(*out_self);
    cuda_product shape = {};
    shape.outputs = static_cast<int>(const_dim(site->inputs[WEIGHT], 0));
    shape.depth = static_cast<int>(const_dim(site->inputs[WEIGHT], 1));
    shape.dtype = site->inputs[WEIGHT]->dtype;
    shape.bias = site->inputs[BIAS] ? self : nullptr; // only whether there is one
    self->has_few = shape.dtype != BERTH_DTYPE_F32;
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    if (self->has_few && gpu->groups[device->index]) {
        self->some = cuda_some_plan_for(self, shape.outputs, shape.depth * 2);
    }
    const berth_status opened = cuda_lt_open(self, shape, cuda_max_rows(site, X), &self->lt);
    if (opened != BERTH_OK) {
        gpu_destroy(self);
    }
    return opened;
}

uint64_t workspace(void *, uint64_t) {
    return CUDA_LT_WORKSPACE;
}

bool is_aligned(const cuda_product &p) {
    const int64_t gap = p.x_gap * BERTH_DTYPE_BITS(p.dtype) / 8;
    return gpu_is_aligned(p.x, gap) && gpu_is_aligned(p.weight, 0);
}

cuda_some some_of(const cuda_product &p) {
    cuda_some all = {};
    all.x = p.x;
    all.weight = p.weight;
    all.bias = p.bias;
    all.bias_dtype = p.dtype;
    all.y = p.y;
    all.x_gap = p.x_gap * 2;
    all.y_gap = p.y_gap;
    all.rows = p.rows;
    all.outputs = p.outputs;
    all.bytes = p.depth * 2;
    return all;
}

berth_status forward(void *self, const berth_op_args *args) {
    const fast_linear *op = static_cast<const fast_linear *>(self);
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *bias = args->inputs[BIAS];
    const berth_tensor *y = args->outputs[0];
    cuda_product p = {};
    p.x = berth_gpu_data(x);
    p.weight = berth_gpu_data(weight);
    p.bias = bias ? berth_gpu_data(bias) : nullptr;
    p.y = berth_gpu_data(y);
    p.rows = static_cast<int>(berth_tensor_row_count(x));
    p.outputs = static_cast<int>(weight->shape[0]);
    p.depth = static_cast<int>(weight->shape[1]);
    p.x_gap = p.rows > 1 ? x->strides[0] : p.depth;
    p.y_gap = p.rows > 1 ? y->strides[0] : p.outputs;
    p.dtype = x->dtype;
    if (p.rows == 0) {
        return BERTH_OK;
    }
    if (op->has_few && p.rows <= CUDA_FEW_ROWS && is_aligned(p)) {
        return cuda_few_rows(op, p);
    }
    const cuda_some some = some_of(p);
    return cuda_some_takes(some, op->some)
               ? cuda_some_numbers(op, some, op->some, p.dtype)
               : cuda_lt_run(op, op->lt, p, berth_gpu_data(args->workspace));
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
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
