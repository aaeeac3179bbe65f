// SPDX-License-Identifier: Apache-2.0
// conv2d on a GPU.
#include "convolution.h"

extern "C" {
extern const berth_op_impl berth_kernel_conv2d;
const berth_op_impl berth_kernel_conv2d = {
    BERTH_GPU_KERNEL("conv2d"),
    GPU_CONVOLUTION_SLOTS(2),
};
}
