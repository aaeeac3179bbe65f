// SPDX-License-Identifier: Apache-2.0
// scaled_linear on compute capability 9.0 where columns have scales of their own, with results of
// 16 bits. Blocks of e4m3 are multiplied as codes and scaled as sums grow, by the kernels of some
// rows and of many (some_groups.cu, many_groups.cu). Of other groups few rows are few_codes.cu's;
// of more both sides become numbers of the result's type, rounded once, which cuBLASLt multiplies.
// What this does not take is left to gpu.scaled_linear.
#include <cuda/codes/few_codes.h>
#include <cuda/codes/many.h>
#include <cuda/codes/widen.h>
#include <cuda/product/some.h>

extern "C" {
extern const berth_op_impl berth_kernel_scaled_linear;
}

namespace {

enum { X, X_SCALE, WEIGHT, WEIGHT_SCALE, SUM_BIAS, BIAS };

constexpr int PLANS = 8; // of some rows, a tile more each

struct grouped : gpu_op {
    void *plain; // gpu.scaled_linear
    berth_code code;
    gpu_code_scales scales;
    berth_dtype dtype; // of y
    const cuda_lt *lt;
    int max_rows;
    int depth;
    int slice; // outputs that are widened at a time
    bool is_blocks;
    cuda_some_plan some[PLANS];
};

// ---- instances ----------------------------------------------------------------------------------

berth_dtype dtype_of(const berth_op_site *site) {
    const char *name = berth_site_attribute(site, "dtype")->str;
    return strcmp(name, "bf16") == 0  ? BERTH_DTYPE_BF16
           : strcmp(name, "f16") == 0 ? BERTH_DTYPE_F16
                                      : BERTH_DTYPE_F32;
}

berth_code code_of(const berth_op_site *site) {
    return site->inputs[X]->dtype == BERTH_DTYPE_I8 ? BERTH_CODE_I8 : BERTH_CODE_E4M3;
}

gpu_code_scales scales_of(const berth_op_site *site) {
    const berth_value_type *weight = site->inputs[WEIGHT];
    return gpu_code_scales_of(site, weight->dims[0].b, weight->dims[1].b);
}

const char *why_not(const berth_op_site *site) {
    const berth_value_type *bias = site->inputs[BIAS];
    const int64_t outputs = site->inputs[WEIGHT]->dims[0].b;
    const int64_t depth = site->inputs[WEIGHT]->dims[1].b;
    return dtype_of(site) == BERTH_DTYPE_F32            ? "results in f32"
           : site->inputs[WEIGHT_SCALE]->dims[1].b == 1 ? "one scale for all columns"
           : bias && bias->dtype != dtype_of(site)      ? "a bias of another type than the result"
           : site->inputs[X]->ndim > 2                  ? "more than rows"
           : !(site->parameter_mask >> WEIGHT & 1)      ? "a weight that is no parameter"
           : outputs % 16 != 0 || !cuda_few_codes_takes(code_of(site), scales_of(site), depth)
               ? "outputs or columns of a group are no multiple of 16, or rows too long"
               : nullptr;
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    const char *why = gpu->groups[device->index] ? why_not(site) : "not of compute capability 9.0";
    return why ? BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why)
               : cuda_lt_check(site->host, device);
}

void plan_blocks(grouped *self, int outputs) {
    self->is_blocks = self->code == BERTH_CODE_E4M3 && cuda_groups_are_blocks(self->scales);
    for (int i = 0; i < PLANS && self->is_blocks; ++i) {
        self->some[i] = cuda_some_plan_for(self, {(i + 1) * CUDA_SOME_ROWS, outputs, self->depth});
    }
}

void destroy(void *self) {
    berth_kernel_scaled_linear.destroy(static_cast<grouped *>(self)->plain);
    gpu_destroy(self);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<grouped>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    grouped *self = static_cast<grouped *>(*out_self);
    self->code = code_of(site);
    self->scales = scales_of(site);
    self->dtype = dtype_of(site);
    self->max_rows = cuda_max_rows(site, X);
    self->depth = static_cast<int>(site->inputs[WEIGHT]->dims[1].b);
    self->slice = cuda_widened_slice(site->inputs[WEIGHT]->dims[0].b, self->depth);
    plan_blocks(self, static_cast<int>(site->inputs[WEIGHT]->dims[0].b));
    status = berth_kernel_scaled_linear.create(site, device, &self->plain);
    if (status != BERTH_OK) {
        gpu_destroy(self);
        return status;
    }
    cuda_product shape = {};
    shape.outputs = self->slice;
    shape.depth = self->depth;
    shape.dtype = self->dtype;
    shape.bias = site->inputs[BIAS] ? self : nullptr; // only whether there is one
    status = cuda_lt_open(self, shape, self->max_rows, &self->lt);
    if (status != BERTH_OK) {
        destroy(self);
    }
    return status;
}

// The workspace: cuBLASLt's, a slice of weights as numbers, x as such.
uint64_t rows_bytes(const grouped *op, int rows) {
    return static_cast<uint64_t>(rows) * static_cast<uint64_t>(op->depth) * 2;
}
uint64_t x_from(const grouped *op) {
    return CUDA_LT_WORKSPACE + rows_bytes(op, op->slice);
}
uint64_t workspace(void *self, uint64_t) {
    const grouped *op = static_cast<const grouped *>(self);
    return x_from(op) + rows_bytes(op, op->max_rows);
}

// ---- a step -------------------------------------------------------------------------------------

gpu_codes_product product_of(const grouped *op, const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *x_scale = args->inputs[X_SCALE];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *bias = args->inputs[BIAS];
    const int64_t groups = x_scale->shape[x_scale->ndim - 1];
    gpu_codes_product all = {};
    all.code = op->code;
    all.weight = static_cast<const uint8_t *>(berth_gpu_data(weight));
    all.scales = gpu_code_scales_at(op->scales, args->inputs[WEIGHT_SCALE]);
    all.bias = bias ? berth_gpu_data(bias) : nullptr;
    all.bias_dtype = bias ? bias->dtype : BERTH_DTYPE_F32;
    all.x = gpu_rows_of(x);
    all.rows_per_x = 1;
    all.x_scales = static_cast<const float *>(berth_gpu_data(x_scale));
    all.x_scale_gap = groups > 1 || berth_tensor_row_count(x_scale) > 1 ? groups : 0;
    all.x_scale_step = groups > 1;
    all.y = berth_gpu_data(args->outputs[0]);
    all.outputs = static_cast<int>(weight->shape[0]);
    all.depth = static_cast<int>(weight->shape[1]);
    return all;
}

cuda_groups groups_of(const gpu_codes_product &all) {
    return cuda_groups{all.scales, all.x_scales, all.x_scale_gap,
                       static_cast<int>(all.x_scale_step)};
}

cuda_some some_of(const gpu_codes_product &all, int rows) {
    cuda_some some = {};
    some.rows = rows;
    some.outputs = all.outputs;
    some.bytes = all.depth;
    some.x = all.x.data;
    some.x_gap = rows > 1 ? all.x.outer_gap : all.depth;
    some.weight = all.weight;
    some.y = all.y;
    some.y_gap = all.outputs;
    some.bias = all.bias;
    some.bias_dtype = all.bias_dtype;
    some.groups = groups_of(all);
    return some;
}

cuda_coded many_of(const gpu_codes_product &all, int rows) {
    cuda_coded many = {};
    many.x = reinterpret_cast<const char *>(all.x.data);
    many.weight = all.weight;
    many.y = all.y;
    many.bias = all.bias;
    many.bias_dtype = all.bias_dtype;
    many.x_gap = rows > 1 ? all.x.outer_gap : all.depth;
    many.y_gap = all.outputs;
    many.rows = rows;
    many.outputs = all.outputs;
    many.bytes = all.depth;
    many.groups = groups_of(all);
    return many;
}

// Copies of tiles take no row twice.
bool takes_blocks(const grouped *op, const gpu_codes_product &all, int64_t rows) {
    return op->is_blocks && gpu_is_aligned(all.y, 0) && (rows == 1 || all.x.outer_gap > 0);
}

berth_status multiply_blocks(const grouped *op, const gpu_codes_product &all, int rows) {
    const cuda_some some = some_of(all, rows);
    const cuda_coded many = many_of(all, rows);
    const int plan = (rows - 1) / CUDA_SOME_ROWS;
    return plan < PLANS && op->some[plan].microseconds < cuda_many_groups_time(op, many)
               ? cuda_some_groups(op, some, op->some[plan], op->dtype)
               : cuda_many_groups(op, many, op->dtype);
}

// x as numbers, then every slice.
berth_status multiply(const grouped *op, const gpu_codes_product &all, int rows, char *room) {
    cuda_widened weights = {};
    weights.codes = all.weight;
    weights.scales = all.scales;
    weights.code = op->code;
    weights.gap = op->depth;
    weights.depth = op->depth;
    cuda_widened x = weights;
    x.codes = reinterpret_cast<const uint8_t *>(all.x.data);
    x.gap = all.x.outer_gap;
    x.count = rows;
    x.scales.data = all.x_scales;
    x.scales.dtype = BERTH_DTYPE_F32;
    x.scales.rows = all.x_scale_gap > 0 ? 1 : rows;
    x.scales.columns = all.x_scale_step > 0 ? all.scales.columns : op->depth;
    x.scales.across = all.x_scale_gap;
    cuda_product p = {};
    p.x = room + x_from(op);
    p.weight = room + CUDA_LT_WORKSPACE;
    p.bias = all.bias;
    p.y = all.y;
    p.x_gap = op->depth;
    p.y_gap = all.outputs;
    p.rows = rows;
    p.outputs = all.outputs;
    p.depth = op->depth;
    p.dtype = op->dtype;
    const berth_status status = cuda_widen(op, x, op->dtype, room + x_from(op));
    return status == BERTH_OK ? cuda_multiply_widened(op, op->lt, {weights, op->slice}, p, room)
                              : status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const grouped *op = static_cast<const grouped *>(self);
    const int64_t rows = berth_tensor_row_count(args->inputs[X]);
    if (rows == 0) {
        return BERTH_OK;
    }
    cuda_few_codes call = {};
    call.all = product_of(op, args);
    call.choices.count = static_cast<int>(rows);
    call.dtype = op->dtype;
    if (!gpu_is_aligned(call.all.x) || !gpu_is_aligned(call.all.weight, call.all.depth)) {
        return berth_kernel_scaled_linear.forward(op->plain, args);
    }
    if (takes_blocks(op, call.all, rows)) {
        return multiply_blocks(op, call.all, static_cast<int>(rows));
    }
    return rows <= CUDA_FEW_CODES_ROWS
               ? cuda_run_few_codes(op, call)
               : multiply(op, call.all, static_cast<int>(rows),
                          static_cast<char *>(berth_gpu_data(args->workspace)));
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_scaled_linear_groups;
const berth_op_impl berth_kernel_scaled_linear_groups = {
    .size = sizeof(berth_op_impl),
    .op = "scaled_linear",
    .name = "cuda.scaled_linear_groups",
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
