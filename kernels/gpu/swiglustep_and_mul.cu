// SPDX-License-Identifier: Apache-2.0
// swiglustep_and_mul on a GPU: silu of the gate and the second half, both bounded.
#include "activation.h"

namespace {

struct formula {
    float limit;

    void read(const berth_op_site *site) {
        limit = gpu_attribute_f32(site, "limit");
    }
    template <typename T> __device__ float at(float gate, float up) const {
        const float most = gpu_rounded<T>(limit);
        const float silu = gpu_rounded<T>(gpu_silu<T>(gate));
        return gpu_at_most(silu, most) * gpu_at_least(gpu_at_most(up, most), -most);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_swiglustep_and_mul;
const berth_op_impl berth_kernel_swiglustep_and_mul = {
    BERTH_GPU_KERNEL("swiglustep_and_mul"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_HALVES, formula),
};
}
