// SPDX-License-Identifier: Apache-2.0
// quick_gelu on a GPU: x · sigmoid(1.702 x), rounded as in the reference.
#include "activation.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float x, float) const {
        return x * gpu_rounded<T>(gpu_sigmoid<T>(gpu_rounded<T>(1.702f * x)));
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_quick_gelu;
const berth_op_impl berth_kernel_quick_gelu = {
    BERTH_GPU_KERNEL("quick_gelu"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_UNARY, formula),
};
}
