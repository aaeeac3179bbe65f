// SPDX-License-Identifier: Apache-2.0
// scale_logits on a GPU: logits times a scale, bounded by tanh before it where there is a cap.
#include "activation.h"

namespace {

struct formula {
    float scale;
    float soft_cap;

    void read(const berth_op_site *site) {
        scale = gpu_attribute_f32(site, "scale");
        soft_cap = gpu_attribute_f32(site, "soft_cap");
    }
    template <typename T> __device__ float at(float x, float) const {
        if (soft_cap > 0) {
            const float share = gpu_rounded<T>(tanhf(gpu_rounded<T>(x / soft_cap)));
            return scale * gpu_rounded<T>(share * soft_cap);
        }
        return scale * x;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_scale_logits;
const berth_op_impl berth_kernel_scale_logits = {
    BERTH_GPU_KERNEL("scale_logits"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_UNARY, formula),
};
}
