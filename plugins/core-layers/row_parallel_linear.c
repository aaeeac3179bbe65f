// SPDX-License-Identifier: Apache-2.0
// RowParallelLinear: y = x W^T + b; ranks may divide the inputs and add up.
// Input x [tokens, input_size]; output [tokens, output_size].
// Attributes: input_size, output_size, bias (0).
#include "linear/linear.h"

static void build(berth_builder *builder, const berth_call *call) {
    const berth_linear linear = {
        .layer_class = "RowParallelLinear",
        .output_size = berth_call_i64(call, "output_size", 0),
    };
    call->outputs[0] = berth_linear_emit(builder, call, linear);
}

const berth_layer berth_layer_row_parallel_linear = {
    .size = sizeof(berth_layer),
    .name = "RowParallelLinear",
    .build = build,
};
