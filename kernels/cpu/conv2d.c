// SPDX-License-Identifier: Apache-2.0
// conv2d: convolution.h as this op.
#include <cpu/convolution.h>

const berth_op_impl berth_kernel_conv2d = {
    .size = sizeof(berth_op_impl),
    .op = "conv2d",
    .name = "cpu.conv2d",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = conv_supports,
    .create = conv_create,
    .workspace = conv_workspace,
    .forward = conv_forward,
    .destroy = berth_instance_free,
    .packed_bytes = conv_packed_bytes,
    .pack = conv_pack,
};
