// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul_sparse on a GPU: gelu of what stands above the row's cutoff, times the second half;
// a block a row. Rounded where the reference rounds, since a gate near the cutoff is a difference.
#include "activation.h"

#include <string.h>

#include <quantile.h>

namespace {

constexpr int THREADS = 256;

struct sparse : gpu_op {
    float multiplier; // of the deviation
    int is_tanh;
};

// mean + multiplier · deviation of the row's gates. The second sweep mends the mean, too: where
// gates are far from 0 the sum of the first one has lost what a gate is above the cutoff.
template <typename T>
__device__ float cutoff_of(const T *x, int64_t width, float multiplier,
                           float (*room)[THREADS / 32]) {
    const float count = static_cast<float>(width);
    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        sum += gpu_float(x[i]);
    }
    const float about = gpu_block_sum(sum, room[0]) / count;
    float distances = 0;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        const float distance = gpu_float(x[i]) - about;
        distances += distance;
        squares += distance * distance;
    }
    const float more = gpu_block_sum(distances, room[1]) / count;
    const float variance = gpu_block_sum(squares, room[2]) / count - more * more;
    const float deviation = gpu_rounded<T>(sqrtf(gpu_at_least(variance, 0.0f)));
    return gpu_rounded<T>(gpu_add_rn(gpu_rounded<T>(about + more),
                                     gpu_rounded<T>(gpu_mul_rn(deviation, multiplier))));
}

template <typename T>
__global__ void sparse_kernel(gpu_rows x, gpu_rows y, int64_t width, float multiplier,
                              int is_tanh) {
    __shared__ float room[3][THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const T *from = gpu_row<const T>(x, blockIdx.x);
    const float cutoff = cutoff_of(from, width, multiplier, room);
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        const float kept = gpu_at_least(gpu_rounded<T>(gpu_float(from[i]) - cutoff), 0.0f);
        const float gelu = gpu_rounded<T>(is_tanh ? gpu_gelu_tanh(kept) : gpu_gelu_erf(kept));
        gpu_row<T>(y, blockIdx.x)[i] = gpu_round<T>(gelu * gpu_float(from[width + i]));
    }
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<sparse>(site, device, out_self);
    if (status == BERTH_OK) {
        sparse *self = static_cast<sparse *>(*out_self);
        const double share = berth_site_attribute(site, "activation_sparsity")->f64;
        self->multiplier = static_cast<float>(berth_normal_quantile(share));
        self->is_tanh = strcmp(berth_site_attribute(site, "approximate")->str, "tanh") == 0;
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const sparse *op = static_cast<const sparse *>(self);
    const berth_tensor *y = args->outputs[0];
    const int64_t rows = berth_tensor_row_count(y);
    const int64_t width = y->shape[y->ndim - 1];
    if (rows == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows)), dim3(THREADS), 0};
    return gpu_with_type(y->dtype, [&](auto type) {
        return gpu_run(op, "gelu_and_mul_sparse", grid,
                       sparse_kernel<typename decltype(type)::type>, gpu_rows_of(args->inputs[0]),
                       gpu_rows_of(y), width, op->multiplier, op->is_tanh);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_gelu_and_mul_sparse;
const berth_op_impl berth_kernel_gelu_and_mul_sparse = {
    BERTH_GPU_KERNEL("gelu_and_mul_sparse"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = gpu_activation_supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
