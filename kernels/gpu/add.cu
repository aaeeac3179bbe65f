// SPDX-License-Identifier: Apache-2.0
// add on a GPU: the sum of two tensors.
#include "pair.h"

namespace {

struct combine {
    __device__ float operator()(float a, float b) const {
        return a + b;
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_add;
const berth_op_impl berth_kernel_add = {
    BERTH_GPU_KERNEL("add"),
    .revision = 1,
    GPU_PAIR_SLOTS(combine),
};
}
