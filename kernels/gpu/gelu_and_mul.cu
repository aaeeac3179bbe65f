// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul on a GPU: gelu of the first half, rounded as in the reference, times the second.
#include "activation.h"

#include <string.h>

namespace {

struct formula {
    int is_tanh;

    void read(const berth_op_site *site) {
        is_tanh = strcmp(berth_site_attribute(site, "approximate")->str, "tanh") == 0;
    }
    template <typename T> __device__ float at(float gate, float up) const {
        return gpu_rounded<T>(is_tanh ? gpu_gelu_tanh(gate) : gpu_gelu_erf(gate)) * up;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_gelu_and_mul;
const berth_op_impl berth_kernel_gelu_and_mul = {
    BERTH_GPU_KERNEL("gelu_and_mul"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_HALVES, formula),
};
}
