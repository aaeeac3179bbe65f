// SPDX-License-Identifier: Apache-2.0
// Which kernel has a product: own ones for few and for some rows of 16 bits, cuBLASLt for the rest.
#include <cuda/product/linear.h>

namespace {

constexpr int64_t MAX_FEW_OUTPUTS = INT64_C(1) << 30;

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

} // namespace

berth_status cuda_linear_supports(const berth_op_site *site, const berth_device *device) {
    const berth_value_type *x = site->inputs[CUDA_LINEAR_X];
    const berth_value_type *weight = site->inputs[CUDA_LINEAR_WEIGHT];
    const berth_value_type *bias = site->inputs[CUDA_LINEAR_BIAS];
    if (!gpu_is_float(x->dtype) || x->dtype != weight->dtype || (bias && bias->dtype != x->dtype)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "operands of different types");
    }
    if (!(site->parameter_mask >> CUDA_LINEAR_WEIGHT & 1) || x->ndim > 2) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "only rows times a weight that stays");
    }
    const int64_t outputs = cuda_const_dim(weight, 0);
    const int64_t depth = cuda_const_dim(weight, 1);
    if (depth % 8 != 0 || outputs % 8 != 0 || outputs > MAX_FEW_OUTPUTS) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "a weight of %lld by %lld: both must be multiples of 8",
                                 (long long)outputs, (long long)depth);
    }
    return cuda_lt_check(site->host, device);
}

berth_status cuda_linear_open(const gpu_op *op, const berth_op_site *site, cuda_linear *out) {
    const berth_value_type *weight = site->inputs[CUDA_LINEAR_WEIGHT];
    cuda_product shape = {};
    shape.outputs = static_cast<int>(cuda_const_dim(weight, 0));
    shape.depth = static_cast<int>(cuda_const_dim(weight, 1));
    shape.dtype = weight->dtype;
    shape.bias = site->inputs[CUDA_LINEAR_BIAS] ? op : nullptr; // only whether there is one
    out->has_few = shape.dtype != BERTH_DTYPE_F32;
    if (out->has_few && op->gpu->groups[op->device]) {
        out->some = cuda_some_plan_for(op, {CUDA_SOME_ROWS, shape.outputs, shape.depth * 2});
    }
    return cuda_lt_open(op, shape, cuda_max_rows(site, CUDA_LINEAR_X), &out->lt);
}

cuda_product cuda_linear_product(const berth_op_args *args, const berth_tensor *y) {
    const berth_tensor *x = args->inputs[CUDA_LINEAR_X];
    const berth_tensor *weight = args->inputs[CUDA_LINEAR_WEIGHT];
    const berth_tensor *bias = args->inputs[CUDA_LINEAR_BIAS];
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
    return p;
}

berth_status cuda_linear_run(const gpu_op *op, const cuda_linear &linear,
                             const cuda_product &product, void *workspace) {
    if (linear.has_few && product.rows <= CUDA_FEW_ROWS && is_aligned(product)) {
        return cuda_few_rows(op, product);
    }
    const cuda_some some = some_of(product);
    return cuda_some_takes(some, linear.some)
               ? cuda_some_numbers(op, some, linear.some, product.dtype)
               : cuda_lt_run(op, linear.lt, product, workspace);
}
