// SPDX-License-Identifier: Apache-2.0
// gelu on a GPU: x/2 · (1 + erf(x/√2)).
#include "activation.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float x, float) const {
        // Why not an operator: the compiler would halve first. Last it is infinite beyond half the
        // largest float, as in the reference.
        return gpu_mul_rn(0.5f, gpu_mul_rn(x, 1.0f + erff(x * 0.70710678118654752440f)));
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_gelu;
const berth_op_impl berth_kernel_gelu = {
    BERTH_GPU_KERNEL("gelu"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_UNARY, formula),
};
}
