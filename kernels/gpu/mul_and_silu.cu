// SPDX-License-Identifier: Apache-2.0
// mul_and_silu on a GPU: the first half times silu of the second, rounded.
#include "activation.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float first, float second) const {
        return first * gpu_rounded<T>(gpu_silu<T>(second));
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mul_and_silu;
const berth_op_impl berth_kernel_mul_and_silu = {
    BERTH_GPU_KERNEL("mul_and_silu"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_HALVES, formula),
};
}
