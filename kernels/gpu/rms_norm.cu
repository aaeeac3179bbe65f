// SPDX-License-Identifier: Apache-2.0
// rms_norm on a GPU: y = x / sqrt(mean(x²) + eps) · weight, with x + residual before it when there
// is one. One block a row; f32; the row is read from memory once and kept in registers where it
// fits.
#include "gpu.h"

namespace {

constexpr int THREADS = 256;

enum { INPUT_X, INPUT_RESIDUAL, INPUT_WEIGHT };
enum { OUTPUT_Y, OUTPUT_RESIDUAL };

struct norm {
    const berth_host *host;
    gpuStream_t stream;
    float eps;
};

// A tensor of rows: [outer, inner, hidden] with any strides of the first two, elements.
struct rows {
    float *data;
    int64_t outer_stride;
    int64_t inner_stride;
};

struct shape {
    int64_t inner;
    int64_t hidden;
    float eps;
};

__device__ float *row_of(const rows &tensor, const shape &s, int64_t row) {
    return tensor.data + row / s.inner * tensor.outer_stride + row % s.inner * tensor.inner_stride;
}

__device__ float block_sum(float value) {
    __shared__ float partial[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffffu, value, offset);
    }
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        sum += partial[warp];
    }
    return sum;
}

__global__ void rms_norm_kernel(rows x, rows residual, const float *weight, rows y,
                                rows residual_out, shape s) {
    const float *from = row_of(x, s, blockIdx.x);
    const float *add = residual.data ? row_of(residual, s, blockIdx.x) : nullptr;
    float *sum_to = residual_out.data ? row_of(residual_out, s, blockIdx.x) : nullptr;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < s.hidden; i += THREADS) {
        const float value = add ? from[i] + add[i] : from[i];
        if (sum_to) {
            sum_to[i] = value;
        }
        squares += value * value;
    }
    const float scale = rsqrtf(block_sum(squares) / (float)s.hidden + s.eps);
    // Every thread reads again only what it wrote itself.
    const float *values = sum_to ? sum_to : from;
    float *to = row_of(y, s, blockIdx.x);
    for (int64_t i = threadIdx.x; i < s.hidden; i += THREADS) {
        to[i] = values[i] * scale * (weight ? weight[i] : 1.0f);
    }
}

rows rows_of(const berth_tensor *tensor) {
    if (!tensor) {
        return rows{nullptr, 0, 0};
    }
    const int is_deep = tensor->ndim == 3;
    return rows{static_cast<float *>(berth_gpu_data(tensor)), tensor->strides[0],
                is_deep ? tensor->strides[1] : 0};
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_value_type *x = site->inputs[INPUT_X];
    const berth_value_type *weight = site->inputs[INPUT_WEIGHT];
    if (x->dtype != BERTH_DTYPE_F32 || (weight && weight->dtype != BERTH_DTYPE_F32)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only float32");
    }
    if (x->ndim < 2 || x->ndim > 3) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only 2 or 3 dimensions");
    }
    const berth_attribute *var_hidden_size = berth_site_attribute(site, "var_hidden_size");
    if (var_hidden_size && var_hidden_size->kind != BERTH_ATTRIBUTE_NONE) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "no var_hidden_size");
    }
    return BERTH_OK;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_host *host = site->host;
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    norm *self = static_cast<norm *>(host->alloc(host, sizeof *self, 0));
    if (!self) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for rms_norm");
    }
    self->host = host;
    self->stream = gpu->streams[device->index];
    self->eps = static_cast<float>(berth_site_attribute(site, "eps")->f64);
    *out_self = self;
    return BERTH_OK;
}

void destroy(void *self) {
    const berth_host *host = static_cast<norm *>(self)->host;
    host->free(host, self);
}

berth_status forward(void *self, const berth_op_args *args) {
    const norm *op = static_cast<const norm *>(self);
    const berth_tensor *x = args->inputs[INPUT_X];
    const berth_tensor *weight = args->inputs[INPUT_WEIGHT];
    const berth_tensor *residual = args->inputs[INPUT_RESIDUAL];
    const int64_t inner = x->ndim == 3 ? x->shape[1] : 1;
    const int64_t count = x->shape[0] * inner;
    if (count == 0) {
        return BERTH_OK;
    }
    const float *scale = weight ? static_cast<const float *>(berth_gpu_data(weight)) : nullptr;
    rms_norm_kernel<<<static_cast<unsigned>(count), THREADS, 0, op->stream>>>(
        rows_of(x), rows_of(residual), scale, rows_of(args->outputs[OUTPUT_Y]),
        rows_of(residual ? args->outputs[OUTPUT_RESIDUAL] : nullptr),
        shape{inner, x->shape[x->ndim - 1], op->eps});
    return berth_gpu_launched(op->host, "rms_norm");
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_rms_norm;
const berth_op_impl berth_kernel_rms_norm = {
    .size = sizeof(berth_op_impl),
    .op = "rms_norm",
    .name = "gpu.rms_norm",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = destroy,
};
}
