// SPDX-License-Identifier: Apache-2.0
// silu_and_mul_with_clamp on a GPU: gate · sigmoid(alpha · gate) · (up + beta), both bounded; every
// step rounded as in the reference.
#include "activation.h"

namespace {

struct formula {
    float limit;
    float alpha;
    float beta;

    void read(const berth_op_site *site) {
        limit = gpu_attribute_f32(site, "swiglu_limit");
        alpha = gpu_attribute_f32(site, "alpha");
        beta = gpu_attribute_f32(site, "beta");
    }
    template <typename T> __device__ float at(float gate, float up) const {
        const float most = gpu_rounded<T>(limit);
        const float held = gpu_at_most(gate, most);
        const float inner = gpu_rounded<T>(alpha * held);
        const float glu = gpu_rounded<T>(held * gpu_rounded<T>(gpu_sigmoid<T>(inner)));
        return glu * gpu_rounded<T>(gpu_at_least(gpu_at_most(up, most), -most) + beta);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_silu_and_mul_with_clamp;
const berth_op_impl berth_kernel_silu_and_mul_with_clamp = {
    BERTH_GPU_KERNEL("silu_and_mul_with_clamp"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_HALVES, formula),
};
}
