// SPDX-License-Identifier: Apache-2.0
// ColumnParallelLinear: y = x W^T + b; ranks divide the outputs.
// Input x [tokens, input_size]; output [tokens, output_size / ranks], with gather_output all of it.
// Attributes: input_size, output_size, bias (0), gather_output (0), tp_size (1), tp_rank (0),
// disable_tp (0).
#include "linear/linear.h"

static void build(berth_builder *builder, const berth_call *call) {
    const berth_world world = berth_world_of(builder, call);
    const int64_t outputs = berth_call_i64(call, "output_size", 0);
    const berth_part part = berth_world_part(builder, call, world, "output_size", outputs);
    const berth_linear linear = {
        .layer_class = "ColumnParallelLinear",
        .output_size = part.extent,
        .stored_output_offset = part.offset,
        .stored_output_extent = world.size > 1 ? outputs : 0,
    };
    const berth_value y = berth_linear_emit(builder, call, linear);
    call->outputs[0] = berth_linear_gather(builder, call, world, y);
}

const berth_layer berth_layer_column_parallel_linear = {
    .size = sizeof(berth_layer),
    .name = "ColumnParallelLinear",
    .build = build,
};
