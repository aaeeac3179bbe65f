// SPDX-License-Identifier: Apache-2.0
// situ_and_mul on a GPU: beta · tanh(gate / beta) · sigmoid(gate) · u, u bounded where there is a
// linear_beta.
#include "activation.h"

namespace {

struct formula {
    float beta;
    float linear;

    void read(const berth_op_site *site) {
        beta = gpu_attribute_f32(site, "beta");
        linear = gpu_attribute_f32(site, "linear_beta");
    }
    template <typename T> __device__ float at(float gate, float up) const {
        const float u = linear > 0 ? linear * tanhf(up / linear) : up;
        return beta * tanhf(gate / beta) * gpu_sigmoid<T>(gate) * u;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_situ_and_mul;
const berth_op_impl berth_kernel_situ_and_mul = {
    BERTH_GPU_KERNEL("situ_and_mul"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_HALVES, formula),
};
}
