// SPDX-License-Identifier: Apache-2.0
// mul on a GPU: the product of two tensors.
#include "pair.h"

namespace {

struct combine {
    __device__ float operator()(float a, float b) const {
        return a * b;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mul;
const berth_op_impl berth_kernel_mul = {
    BERTH_GPU_KERNEL("mul"),
    .revision = 1,
    GPU_PAIR_SLOTS(combine),
};
}
