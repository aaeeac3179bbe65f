// SPDX-License-Identifier: Apache-2.0
// conv2d: y = the correlation of x with the kernels of weight, plus bias.
//
//   x       [batch, in, height, width]         f32, f16 or bf16
//   weight  [out, in / groups, height, width], any float dtype
//   bias    [out]                              optional, any float dtype
//   y       [batch, out, height, width]        x's dtype
//
// `stride`, `padding` (zeros on both sides) and `dilation`: one number for all dimensions, or 2.
// Sums in higher precision, one rounding at the end. vLLM's Conv2dLayer.forward_native: where
// the stride is the kernel, with neither padding nor groups, it is a product of patches and the
// dilation is left out, which its device kernels do not do.
#include <berth/op.h>

#include "conv_rules.h"

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    return conv_infer(site, 2, out);
}

static berth_status reference(void *self, const berth_op_args *args) {
    return conv_reference(self, 2, args);
}

const berth_op berth_op_conv2d = {
    .size = sizeof(berth_op),
    .name = "conv2d",
    .class_name = "Conv2dLayer",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
};
