// SPDX-License-Identifier: Apache-2.0
// swigluoai_and_mul on a GPU: of interleaved pairs gate · sigmoid(alpha · gate) · (up + 1), both
// bounded; every step rounded as in the reference.
#include "activation.h"

namespace {

struct formula {
    float alpha;
    float limit;

    void read(const berth_op_site *site) {
        alpha = gpu_attribute_f32(site, "alpha");
        limit = gpu_attribute_f32(site, "limit");
    }
    template <typename T> __device__ float at(float gate, float up) const {
        const float most = gpu_rounded<T>(limit);
        const float held = gpu_at_most(gate, most);
        const float inner = gpu_rounded<T>(held * alpha);
        const float glu = gpu_rounded<T>(held * gpu_rounded<T>(gpu_sigmoid<T>(inner)));
        return gpu_rounded<T>(gpu_at_least(gpu_at_most(up, most), -most) + 1.0f) * glu;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_swigluoai_and_mul;
const berth_op_impl berth_kernel_swigluoai_and_mul = {
    BERTH_GPU_KERNEL("swigluoai_and_mul"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_INTERLEAVED, formula),
};
}
