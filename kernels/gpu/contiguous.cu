// SPDX-License-Identifier: Apache-2.0
// contiguous on a GPU: a copy without gaps of a tensor with any strides. One element a thread; bits
// are copied, so the type is only a width.
#include "launch.h"

namespace {

constexpr int THREADS = 256;

struct view {
    const char *data;
    int64_t shape[BERTH_MAX_DIMS]; // of the dims but the last
    int64_t strides[BERTH_MAX_DIMS];
    int dims; // but the last
    int64_t width;
    int64_t stride; // of the last
};

template <typename U> __global__ void contiguous_kernel(view x, U *y, int64_t count) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int64_t number = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (number >= count) {
        return;
    }
    int64_t row = number / x.width;
    int64_t offset = (number - row * x.width) * x.stride;
    for (int dim = x.dims; dim-- > 0;) {
        offset += row % x.shape[dim] * x.strides[dim];
        row /= x.shape[dim];
    }
    y[number] = reinterpret_cast<const U *>(x.data)[offset];
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_floats(site, 0);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *x = args->inputs[0];
    view from = {};
    from.data = static_cast<const char *>(berth_gpu_data(x));
    from.dims = x->ndim > 0 ? x->ndim - 1 : 0;
    from.width = x->ndim > 0 ? x->shape[x->ndim - 1] : 1;
    from.stride = x->ndim > 0 ? x->strides[x->ndim - 1] : 1;
    int64_t count = from.width;
    for (int dim = 0; dim < from.dims; ++dim) {
        from.shape[dim] = x->shape[dim];
        from.strides[dim] = x->strides[dim];
        count *= x->shape[dim];
    }
    if (count == 0) {
        return BERTH_OK;
    }
    void *to = berth_gpu_data(args->outputs[0]);
    const gpu_grid grid = {dim3(gpu_ceil(count, THREADS)), dim3(THREADS), 0};
    return x->dtype == BERTH_DTYPE_F32
               ? gpu_run(op, "contiguous", grid, contiguous_kernel<uint32_t>, from,
                         static_cast<uint32_t *>(to), count)
               : gpu_run(op, "contiguous", grid, contiguous_kernel<uint16_t>, from,
                         static_cast<uint16_t *>(to), count);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_contiguous;
const berth_op_impl berth_kernel_contiguous = {
    .size = sizeof(berth_op_impl),
    .op = "contiguous",
    .name = "gpu.contiguous",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
