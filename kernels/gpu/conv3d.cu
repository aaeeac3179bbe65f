// SPDX-License-Identifier: Apache-2.0
// conv3d on a GPU.
#include "convolution.h"

extern "C" {
extern const berth_op_impl berth_kernel_conv3d;
const berth_op_impl berth_kernel_conv3d = {
    BERTH_GPU_KERNEL("conv3d"),
    GPU_CONVOLUTION_SLOTS(3),
};
}
