// SPDX-License-Identifier: Apache-2.0
// gelu_tanh on a GPU: gelu by its tanh approximation.
#include "activation.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float x, float) const {
        return gpu_gelu_tanh(x);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_gelu_tanh;
const berth_op_impl berth_kernel_gelu_tanh = {
    BERTH_GPU_KERNEL("gelu_tanh"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_UNARY, formula),
};
}
