// SPDX-License-Identifier: Apache-2.0
// silu_and_mul on a GPU: y[t, i] = silu(x[t, i]) · x[t, d + i] for x [tokens, 2d]; f32, one thread
// an element.
#include "gpu.h"

namespace {

constexpr int THREADS = 256;

struct activation {
    const berth_host *host;
    gpuStream_t stream;
};

__global__ void silu_and_mul_kernel(const float *x, int64_t x_stride, float *y, int64_t y_stride,
                                    int64_t width) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= width) {
        return;
    }
    const float *row = x + blockIdx.y * x_stride;
    const float gate = row[i];
    y[blockIdx.y * y_stride + i] = gate / (1.0f + expf(-gate)) * row[width + i];
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_value_type *x = site->inputs[0];
    if (x->dtype != BERTH_DTYPE_F32 || x->ndim != 2) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only float32 of 2 dimensions");
    }
    if (site->max_tokens > 65535) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "at most 65535 rows in a step");
    }
    return BERTH_OK;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_host *host = site->host;
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    activation *self = static_cast<activation *>(host->alloc(host, sizeof *self, 0));
    if (!self) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for silu_and_mul");
    }
    self->host = host;
    self->stream = gpu->streams[device->index];
    *out_self = self;
    return BERTH_OK;
}

void destroy(void *self) {
    const berth_host *host = static_cast<activation *>(self)->host;
    host->free(host, self);
}

berth_status forward(void *self, const berth_op_args *args) {
    const activation *op = static_cast<const activation *>(self);
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t width = y->shape[1];
    if (y->shape[0] == 0 || width == 0) {
        return BERTH_OK;
    }
    const dim3 grid(static_cast<unsigned>((width + THREADS - 1) / THREADS),
                    static_cast<unsigned>(y->shape[0]));
    silu_and_mul_kernel<<<grid, THREADS, 0, op->stream>>>(
        static_cast<const float *>(berth_gpu_data(x)), x->strides[0],
        static_cast<float *>(berth_gpu_data(y)), y->strides[0], width);
    return berth_gpu_launched(op->host, "silu_and_mul");
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_silu_and_mul;
const berth_op_impl berth_kernel_silu_and_mul = {
    .size = sizeof(berth_op_impl),
    .op = "silu_and_mul",
    .name = "gpu.silu_and_mul",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = destroy,
};
}
