// SPDX-License-Identifier: Apache-2.0
// RowParallelLinear: y = x W^T + b; ranks divide the inputs and add up, the first with the bias.
// Input x [tokens, input_size / ranks], without input_is_parallel all of it; output [tokens,
// output_size].
// Attributes: input_size, output_size, bias (0), input_is_parallel (1), reduce_results (1),
// tp_size (1), tp_rank (0), disable_tp (0). Every rank rounds its share before the sum.
#include "linear/linear.h"

static void build(berth_builder *builder, const berth_call *call) {
    const berth_world world = berth_world_of(builder, call);
    const int64_t inputs = berth_call_i64(call, "input_size", 0);
    const int64_t outputs = berth_call_i64(call, "output_size", 0);
    const int is_reduced = berth_call_i64(call, "reduce_results", 1) != 0;
    const int has_bias = berth_call_i64(call, "bias", 0) != 0;
    const berth_part part = berth_world_part(builder, call, world, "input_size", inputs);
    if (world.size > 1 && has_bias && !is_reduced) {
        berth_build_fail(builder, BERTH_INVALID_ARGUMENT,
                         "'%s': a bias needs reduce_results, or it would be added by nobody or "
                         "twice",
                         call->prefix);
        return;
    }
    const berth_linear linear = {
        .size = sizeof(berth_linear),
        .prefix = call->prefix,
        .layer_class = "RowParallelLinear",
        .input_size = part.extent,
        .output_size = outputs,
        .has_bias = has_bias && world.rank == 0,
        .stored_input_offset = part.offset,
        .stored_input_extent = world.size > 1 ? inputs : 0,
    };
    if (has_bias && world.rank > 0) {
        builder->ignore(builder, berth_build_name(builder, "%s.bias", call->prefix));
    }
    berth_value x = call->inputs[0];
    if (world.size > 1 && !berth_call_i64(call, "input_is_parallel", 1)) {
        x = builder->slice(builder, x, 1, part.offset, part.extent);
    }
    const berth_value y = builder->linear(builder, &linear, x);
    call->outputs[0] =
        world.size > 1 && is_reduced
            ? BERTH_EMIT(builder, "all_reduce", .prefix = call->prefix, BERTH_INPUTS(y),
                         BERTH_ATTRIBUTES(BERTH_I64("world_size", world.size)))
            : y;
}

const berth_layer berth_layer_row_parallel_linear = {
    .size = sizeof(berth_layer),
    .name = "RowParallelLinear",
    .build = build,
};
