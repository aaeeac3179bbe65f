// SPDX-License-Identifier: Apache-2.0
// silu_and_mul on a GPU: silu of the first half, rounded as in the reference, times the second.
#include "activation.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float gate, float up) const {
        return gpu_rounded<T>(gpu_silu<T>(gate)) * up;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_silu_and_mul;
const berth_op_impl berth_kernel_silu_and_mul = {
    BERTH_GPU_KERNEL("silu_and_mul"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_HALVES, formula),
};
}
