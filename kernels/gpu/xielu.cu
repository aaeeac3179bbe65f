// SPDX-License-Identifier: Apache-2.0
// xielu on a GPU: a quadratic for positive x, an exponential for the others, both learned. Rounded
// where the reference rounds.
#include "each.h"

namespace {

enum { X, ALPHA_P, ALPHA_N, BETA, EPS };

// Learned numbers are read where they lie; the first cache keeps them.
struct formula {
    gpu_rows x;
    const void *learned[EPS + 1]; // of x's type, by input

    template <typename T> __device__ float number(int input) const {
        return gpu_float(*static_cast<const T *>(learned[input]));
    }
    template <typename T> __device__ static float softplus(float value) {
        return value > 20 ? value : gpu_rounded<T>(log1pf(expf(value)));
    }
    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        const float value = gpu_float(gpu_row<const T>(x, row)[i]);
        const float beta = number<T>(BETA);
        const float linear = gpu_rounded<T>(gpu_mul_rn(beta, value));
        if (value > 0) {
            const float slope = gpu_rounded<T>(softplus<T>(number<T>(ALPHA_P)) * value);
            return gpu_add_rn(gpu_rounded<T>(gpu_mul_rn(slope, value)), linear);
        }
        const float eps = number<T>(EPS);
        const float power = gpu_rounded<T>(expm1f(value > eps ? eps : value));
        const float factor = gpu_rounded<T>(beta + softplus<T>(number<T>(ALPHA_N)));
        return gpu_add_rn(gpu_rounded<T>(gpu_mul_rn(gpu_rounded<T>(power - value), factor)),
                          linear);
    }
};

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    formula activate = {};
    activate.x = gpu_rows_of(args->inputs[X]);
    for (int input = ALPHA_P; input <= EPS; ++input) {
        activate.learned[input] = berth_gpu_data(args->inputs[input]);
    }
    return gpu_each_alike(op, activate, args);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_xielu;
const berth_op_impl berth_kernel_xielu = {
    BERTH_GPU_KERNEL("xielu"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = gpu_each_supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
