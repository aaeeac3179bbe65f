// SPDX-License-Identifier: Apache-2.0
// clamp on a GPU: x, but no further from 0 than the limit.
#include "activation.h"

namespace {

struct formula {
    float limit;

    void read(const berth_op_site *site) {
        limit = gpu_attribute_f32(site, "limit");
    }
    template <typename T> __device__ float at(float x, float) const {
        const float most = gpu_rounded<T>(limit);
        return gpu_at_least(gpu_at_most(x, most), -most);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_clamp;
const berth_op_impl berth_kernel_clamp = {
    BERTH_GPU_KERNEL("clamp"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_UNARY, formula),
};
}
