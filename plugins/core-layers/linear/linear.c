// SPDX-License-Identifier: Apache-2.0
// Input: a layer's call. Output: the linear that it describes.
#include "linear.h"

berth_value berth_linear_emit(berth_builder *builder, const berth_call *call, berth_linear linear) {
    linear.size = sizeof linear;
    linear.prefix = call->prefix;
    linear.input_size = berth_call_i64(call, "input_size", 0);
    linear.has_bias = berth_call_i64(call, "bias", 0) != 0;
    return builder->linear(builder, &linear, call->inputs[0]);
}
