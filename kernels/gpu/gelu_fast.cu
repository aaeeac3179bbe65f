// SPDX-License-Identifier: Apache-2.0
// gelu_fast on a GPU: gelu by tanh in another order, every step rounded as in the reference.
#include "activation.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float x, float) const {
        const float first = gpu_rounded<T>(x * 0.7978845608f);
        const float square = gpu_rounded<T>(gpu_rounded<T>(0.044715f * x) * x);
        const float inner = gpu_rounded<T>(first * gpu_rounded<T>(1.0f + square));
        const float factor = gpu_rounded<T>(1.0f + gpu_rounded<T>(tanhf(inner)));
        return gpu_rounded<T>(0.5f * x) * factor;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_gelu_fast;
const berth_op_impl berth_kernel_gelu_fast = {
    BERTH_GPU_KERNEL("gelu_fast"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_UNARY, formula),
};
}
