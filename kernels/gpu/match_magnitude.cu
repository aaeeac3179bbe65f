// SPDX-License-Identifier: Apache-2.0
// match_magnitude on a GPU: x · rms(like) / sqrt(max(mean(x²), least)), a block a row; sums in f32,
// one rounding.
#include "activation.h"

namespace {

enum { X, LIKE };

constexpr int THREADS = 256;

struct matcher : gpu_op {
    float least;
};

template <typename T>
__global__ void match_kernel(gpu_rows x, gpu_rows like, gpu_rows y, int64_t width, float least) {
    __shared__ float room[2][THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const T *from = gpu_row<const T>(x, blockIdx.x);
    const T *size = gpu_row<const T>(like, blockIdx.x);
    float own = 0;
    float wanted = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        own += gpu_float(from[i]) * gpu_float(from[i]);
        wanted += gpu_float(size[i]) * gpu_float(size[i]);
    }
    const float count = static_cast<float>(width);
    own = gpu_block_sum(own, room[0]) / count;
    wanted = gpu_block_sum(wanted, room[1]) / count;
    const float scale = sqrtf(wanted / (own < least ? least : own));
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        gpu_row<T>(y, blockIdx.x)[i] = gpu_round<T>(gpu_float(from[i]) * scale);
    }
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<matcher>(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<matcher *>(*out_self)->least = gpu_attribute_f32(site, "least");
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const matcher *op = static_cast<const matcher *>(self);
    const berth_tensor *x = args->inputs[X];
    const int64_t rows = berth_tensor_row_count(x);
    const int64_t width = x->shape[x->ndim - 1];
    if (rows == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows)), dim3(THREADS), 0};
    return gpu_with_type(x->dtype, [&](auto type) {
        return gpu_run(op, "match_magnitude", grid, match_kernel<typename decltype(type)::type>,
                       gpu_rows_of(x), gpu_rows_of(args->inputs[LIKE]),
                       gpu_rows_of(args->outputs[0]), width, op->least);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_match_magnitude;
const berth_op_impl berth_kernel_match_magnitude = {
    BERTH_GPU_KERNEL("match_magnitude"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = gpu_activation_supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
