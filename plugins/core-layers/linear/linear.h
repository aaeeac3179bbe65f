// SPDX-License-Identifier: Apache-2.0
// What the linear layers share. Private to core-layers.
//
// y = x W^T + b over x [tokens, input_size], by way of the layer's quantization method. Sizes are
// those of the whole model; how ranks divide them is the business of the layer class.
#ifndef BERTH_LINEAR_H
#define BERTH_LINEAR_H

#include <berth/layer.h>

// Completes `linear` (class, output size and shards are set) with the call's prefix and its
// attributes `input_size` and `bias` (0), and emits it. Returns y [tokens, output_size].
berth_value berth_linear_emit(berth_builder *builder, const berth_call *call, berth_linear linear);

#endif
