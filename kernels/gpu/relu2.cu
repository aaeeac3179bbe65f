// SPDX-License-Identifier: Apache-2.0
// relu2 on a GPU: the square of what is positive.
#include "activation.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float x, float) const {
        const float positive = gpu_at_least(x, 0.0f);
        return positive * positive;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_relu2;
const berth_op_impl berth_kernel_relu2 = {
    BERTH_GPU_KERNEL("relu2"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_UNARY, formula),
};
}
