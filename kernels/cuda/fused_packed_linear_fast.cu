// SPDX-License-Identifier: Apache-2.0
// fused_packed_linear on compute capability 9.0: a norm before a product of one row by codes of 4
// bits is made by the product's blocks for themselves; all else by one kernel, before
// cuda.packed_linear, whose sites these are.
#include <cuda/codes/before_site.h>
#include <cuda/codes/fused_codes.h>
#include <cuda/codes/packed.h>
#include <gpu/codes.h>

extern "C" {
extern const berth_op_impl berth_kernel_packed_linear_fast;
}

namespace {

enum { X, WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, RESIDUAL, NORM_WEIGHT, BIAS };

// Of packed_linear's inputs.
constexpr uint64_t FROM[CUDA_INNER_INPUTS] = {
    CUDA_FROM_BEFORE, WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, BIAS, CUDA_FROM_BEFORE};

struct fused_packed : cuda_fused_op {
    gpu_code_scales scales;
    int is_streamed; // codes that the kernel of few rows takes
};

// ---- what it takes ------------------------------------------------------------------------------

void split(const berth_op_site *site, cuda_inner_site *out) {
    cuda_split_site(site, FROM, site->inputs[X]->dtype, out);
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    cuda_inner_site inner;
    const berth_status status = cuda_check_before(site, RESIDUAL);
    split(site, &inner);
    return status == BERTH_OK ? berth_kernel_packed_linear_fast.supports(&inner.site, device)
                              : status;
}

// ---- an instance --------------------------------------------------------------------------------

void destroy(void *self) {
    berth_kernel_packed_linear_fast.destroy(static_cast<fused_packed *>(self)->product);
    gpu_destroy(self);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    cuda_inner_site inner;
    berth_status status = gpu_new<fused_packed>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    fused_packed *self = static_cast<fused_packed *>(*out_self);
    split(site, &inner);
    status = cuda_open_fused(site, &inner.site, device, &berth_kernel_packed_linear_fast, self);
    if (status != BERTH_OK) {
        gpu_destroy(self);
        return status;
    }
    self->scales = gpu_code_scales_of(site, site->inputs[WEIGHT]->dims[0].b, self->width);
    self->is_streamed = berth_code_of(berth_site_attribute(site, "code")->str) == BERTH_CODE_U4 &&
                        !site->inputs[PERMUTATION] && self->scales.rows == 1 &&
                        site->inputs[WEIGHT_SCALE]->dtype != BERTH_DTYPE_F32;
    return BERTH_OK;
}

// The product's, then rows of numbers, of which one in digits takes more than one row's bytes.
uint64_t workspace(void *self, uint64_t) {
    const fused_packed *op = static_cast<const fused_packed *>(self);
    return op->product_bytes +
           static_cast<uint64_t>(op->max_rows + 1) * static_cast<uint64_t>(op->width) * 2;
}

// ---- a step -------------------------------------------------------------------------------------

berth_status run_apart(const fused_packed *op, const cuda_before &before,
                       const berth_op_args *args) {
    char *room = static_cast<char *>(berth_gpu_data(args->workspace)) + op->product_bytes;
    const berth_dtype dtype = args->inputs[X]->dtype;
    cuda_made_tensor x;
    const berth_tensor *inputs[CUDA_INNER_INPUTS];
    berth_op_args product = *args;
    for (int i = 1; i < CUDA_INNER_INPUTS; ++i) {
        inputs[i] = FROM[i] == CUDA_FROM_BEFORE ? nullptr : args->inputs[FROM[i]];
    }
    inputs[0] = cuda_lay_made(&x, room, dtype, before.rows, op->width);
    product.inputs = inputs;
    cuda_before laid_out = before;
    laid_out.layout = cuda_packed_layout(op->product, &product);
    const berth_status status = cuda_run_before(op, laid_out, dtype, room, nullptr);
    return status != BERTH_OK ? status
           : laid_out.layout != CUDA_IN_ROWS
               ? cuda_packed_run_laid_out(op->product, &product)
               : berth_kernel_packed_linear_fast.forward(op->product, &product);
}

berth_status forward(void *self, const berth_op_args *args) {
    const fused_packed *op = static_cast<const fused_packed *>(self);
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scales = args->inputs[WEIGHT_SCALE];
    const berth_tensor *zeros = args->inputs[ZERO_POINTS];
    const cuda_before before = cuda_before_of(args, RESIDUAL, op->step, op->eps, op->width);
    cuda_coded all = cuda_coded_of(x, args->inputs[WEIGHT], args->inputs[BIAS], args->outputs[0]);
    all.group_scales = static_cast<const uint16_t *>(berth_gpu_data(scales));
    all.scale_dtype = scales->dtype;
    all.zeros = zeros ? static_cast<const uint8_t *>(berth_gpu_data(zeros)) : nullptr;
    all.across = static_cast<int>(op->scales.across);
    all.group = static_cast<int>(op->scales.columns);
    if (all.rows == 0) {
        return BERTH_OK;
    }
    return op->is_streamed && cuda_fuses_packed(before, all)
               ? cuda_fused_packed(op, before, all, x->dtype)
               : run_apart(op, before, args);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_fused_packed_linear_fast;
const berth_op_impl berth_kernel_fused_packed_linear_fast = {
    .size = sizeof(berth_op_impl),
    .op = "fused_packed_linear",
    .name = "cuda.fused_packed_linear",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = destroy,
};
}
