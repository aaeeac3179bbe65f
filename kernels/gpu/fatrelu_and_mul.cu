// SPDX-License-Identifier: Apache-2.0
// fatrelu_and_mul on a GPU: the first half where it is above a threshold, else 0, times the second.
#include "activation.h"

namespace {

struct formula {
    float threshold;

    void read(const berth_op_site *site) {
        threshold = gpu_attribute_f32(site, "threshold");
    }
    template <typename T> __device__ float at(float gate, float up) const {
        return (gate <= threshold ? 0.0f : gate) * up;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_fatrelu_and_mul;
const berth_op_impl berth_kernel_fatrelu_and_mul = {
    BERTH_GPU_KERNEL("fatrelu_and_mul"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_HALVES, formula),
};
}
