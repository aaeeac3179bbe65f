// SPDX-License-Identifier: Apache-2.0
// fused_scaled_linear on compute capability 9.0: what is before the product, its codes among it, is
// made by the blocks of the product for themselves where rows are very few, else by one kernel
// before cuda.scaled_linear, whose sites these are.
#include <cuda/codes/before_site.h>
#include <cuda/codes/fused_codes.h>

extern "C" {
extern const berth_op_impl berth_kernel_scaled_linear_fast;
}

namespace {

enum {
    X,
    WEIGHT,
    WEIGHT_SCALE,
    RESIDUAL,
    NORM_WEIGHT,
    INPUT_SCALE,
    INPUT_ZERO_POINT,
    SUM_BIAS,
    BIAS,
};

// Of scaled_linear's inputs.
constexpr uint64_t FROM[CUDA_INNER_INPUTS] = {
    CUDA_FROM_BEFORE, CUDA_FROM_BEFORE, WEIGHT, WEIGHT_SCALE, SUM_BIAS, BIAS, CUDA_FROM_BEFORE};
constexpr uint64_t INNER_WEIGHT_SCALE = 3;

struct fused_scaled : cuda_fused_op {
    berth_dtype codes;
};

// ---- what it takes ------------------------------------------------------------------------------

void split(const berth_op_site *site, cuda_inner_site *out) {
    cuda_split_site(site, FROM, site->inputs[WEIGHT]->dtype, out);
    out->inputs[1] = site->inputs[INPUT_SCALE] ? site->inputs[INPUT_SCALE] : &out->x_scale;
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    cuda_inner_site inner;
    const char *dtype = berth_site_attribute(site, "dtype")->str;
    const berth_status status = cuda_check_before(site, RESIDUAL);
    if (status != BERTH_OK) {
        return status;
    }
    if (strcmp(dtype, site->inputs[X]->dtype == BERTH_DTYPE_BF16 ? "bf16" : "f16") != 0) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "results of another type than x");
    }
    split(site, &inner);
    return berth_kernel_scaled_linear_fast.supports(&inner.site, device);
}

uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    cuda_inner_site inner;
    split(site, &inner);
    return input == WEIGHT_SCALE
               ? berth_kernel_scaled_linear_fast.packed_bytes(&inner.site, INNER_WEIGHT_SCALE)
               : 0;
}

berth_status pack(const berth_op_site *site, uint64_t, const berth_tensor *source,
                  const berth_tensor *destination) {
    cuda_inner_site inner;
    split(site, &inner);
    return berth_kernel_scaled_linear_fast.pack(&inner.site, INNER_WEIGHT_SCALE, source,
                                                destination);
}

// ---- an instance --------------------------------------------------------------------------------

void destroy(void *self) {
    berth_kernel_scaled_linear_fast.destroy(static_cast<fused_scaled *>(self)->product);
    gpu_destroy(self);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    cuda_inner_site inner;
    berth_status status = gpu_new<fused_scaled>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    fused_scaled *self = static_cast<fused_scaled *>(*out_self);
    self->codes = site->inputs[WEIGHT]->dtype;
    split(site, &inner);
    status = cuda_open_fused(site, &inner.site, device, &berth_kernel_scaled_linear_fast, self);
    if (status != BERTH_OK) {
        gpu_destroy(self);
    }
    return status;
}

// The product's, scales, codes.
uint64_t scales_bytes(const fused_scaled *op) {
    return (static_cast<uint64_t>(op->max_rows) * sizeof(float) + 255) / 256 * 256;
}
uint64_t workspace(void *self, uint64_t) {
    const fused_scaled *op = static_cast<const fused_scaled *>(self);
    return op->product_bytes + scales_bytes(op) +
           static_cast<uint64_t>(op->max_rows) * static_cast<uint64_t>(op->width);
}

// ---- a step -------------------------------------------------------------------------------------

template <typename T> const T *data_of(const berth_tensor *tensor) {
    return tensor ? static_cast<const T *>(berth_gpu_data(tensor)) : nullptr;
}

berth_status run_apart(const fused_scaled *op, const cuda_before &before,
                       const berth_op_args *args) {
    char *room = static_cast<char *>(berth_gpu_data(args->workspace)) + op->product_bytes;
    cuda_made_tensor x;
    cuda_made_tensor scale;
    const berth_tensor *made =
        cuda_lay_made(&x, room + scales_bytes(op), op->codes, before.rows, op->width);
    const berth_tensor *scales = cuda_lay_made(&scale, room, BERTH_DTYPE_F32, before.rows, 1);
    const berth_tensor *inputs[CUDA_INNER_INPUTS] = {
        made,
        args->inputs[INPUT_SCALE] ? args->inputs[INPUT_SCALE] : scales,
        args->inputs[WEIGHT],
        args->inputs[WEIGHT_SCALE],
        args->inputs[SUM_BIAS],
        args->inputs[BIAS],
    };
    berth_op_args product = *args;
    product.inputs = inputs;
    const berth_status status =
        cuda_run_before(op, before, args->inputs[X]->dtype, berth_gpu_data(made),
                        static_cast<float *>(berth_gpu_data(scales)));
    return status == BERTH_OK ? berth_kernel_scaled_linear_fast.forward(op->product, &product)
                              : status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const fused_scaled *op = static_cast<const fused_scaled *>(self);
    const berth_tensor *x = args->inputs[X];
    cuda_before before = cuda_before_of(args, RESIDUAL, op->step, op->eps, op->width);
    before.codes = op->codes;
    before.scale = data_of<float>(args->inputs[INPUT_SCALE]);
    before.zero = data_of<int8_t>(args->inputs[INPUT_ZERO_POINT]);
    cuda_coded all = cuda_coded_of(x, args->inputs[WEIGHT], args->inputs[BIAS], args->outputs[0]);
    all.scales = data_of<float>(args->inputs[WEIGHT_SCALE]);
    all.x_scale_gap = 1;
    all.sum_bias = data_of<int32_t>(args->inputs[SUM_BIAS]);
    return all.rows == 0                    ? BERTH_OK
           : cuda_fuses_scaled(before, all) ? cuda_fused_scaled(op, before, all, x->dtype)
                                            : run_apart(op, before, args);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_fused_scaled_linear_fast;
const berth_op_impl berth_kernel_fused_scaled_linear_fast = {
    .size = sizeof(berth_op_impl),
    .op = "fused_scaled_linear",
    .name = "cuda.fused_scaled_linear",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = destroy,
    .packed_bytes = packed_bytes,
    .pack = pack,
};
}
