// SPDX-License-Identifier: Apache-2.0
// conv3d: y = the correlation of x with the kernels of weight, plus bias.
//
//   x       [batch, in, depth, height, width]  f32, f16 or bf16
//   weight  [out, in / groups, depth, height, width], any float dtype
//   bias    [out]                              optional, any float dtype
//   y       [batch, out, depth, height, width] x's dtype
//
// `stride`, `padding` (zeros on both sides) and `dilation`: one number for all dimensions, or 3.
// Sums in higher precision, one rounding at the end. vLLM's Conv3dLayer.forward_native: where
// the stride is the kernel, with neither padding nor groups, it is a product of patches and the
// dilation is left out, which its device kernels do not do.
#include <berth/op.h>

#include "conv_rules.h"

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    return conv_infer(site, 3, out);
}

static berth_status reference(void *self, const berth_op_args *args) {
    return conv_reference(self, 3, args);
}

const berth_op berth_op_conv3d = {
    .size = sizeof(berth_op),
    .name = "conv3d",
    .class_name = "Conv3dLayer",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
};
