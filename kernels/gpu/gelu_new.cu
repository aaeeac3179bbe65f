// SPDX-License-Identifier: Apache-2.0
// gelu_new on a GPU: gelu by tanh, every step rounded as in the reference.
#include "activation.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float x, float) const {
        const bool is_f16 = sizeof(T) == 2 && !gpu_is_bf16<T>;
        const float square = is_f16 ? x * x : gpu_rounded<T>(x * x);
        const float cube = gpu_rounded<T>(square * x);
        const float sum = gpu_rounded<T>(x + gpu_rounded<T>(0.044715f * cube));
        const float inner = gpu_rounded<T>(0.79788456080286535588f * sum);
        const float factor = gpu_rounded<T>(1.0f + gpu_rounded<T>(tanhf(inner)));
        return gpu_rounded<T>(0.5f * x) * factor;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_gelu_new;
const berth_op_impl berth_kernel_gelu_new = {
    BERTH_GPU_KERNEL("gelu_new"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_UNARY, formula),
};
}
