// SPDX-License-Identifier: Apache-2.0
// GateLinear: the router's projection, whole on every rank.
// Input x [tokens, input_size]; output [tokens, output_size].
// Attributes: input_size, output_size, bias (0), out_dtype ("": x's), force_fp32_compute (0): the
// weight is float32, and x is made so before the product where an out_dtype is given.
// A result of another out_dtype is rounded to x's dtype first: vLLM's plain tier. Its device tiers
// hand over the float32 sum, which can choose other experts.
#include "linear/linear.h"

static berth_value cast(berth_builder *builder, const berth_call *call, berth_value x,
                        const char *dtype) {
    return BERTH_EMIT(builder, "cast", .prefix = call->prefix, BERTH_INPUTS(x),
                      BERTH_ATTRIBUTES(BERTH_TEXT("dtype", dtype)));
}

static int is_dtype(const char *name, berth_dtype dtype) {
    return (name[0] == 'f' && name[1] == '3' && dtype == BERTH_DTYPE_F32) ||
           (name[0] == 'f' && name[1] == '1' && dtype == BERTH_DTYPE_F16) ||
           (name[0] == 'b' && dtype == BERTH_DTYPE_BF16);
}

static void build(berth_builder *builder, const berth_call *call) {
    const char *out_dtype = berth_call_str(call, "out_dtype", "");
    const int is_cast = out_dtype != NULL && out_dtype[0] != 0;
    const int is_forced = berth_call_i64(call, "force_fp32_compute", 0) != 0;
    berth_value x = call->inputs[0];
    if (is_cast && is_forced && builder->type(builder, x)->dtype != BERTH_DTYPE_F32) {
        x = cast(builder, call, x, "f32");
    }
    const berth_linear linear = {
        .size = sizeof(berth_linear),
        .prefix = call->prefix,
        .layer_class = "GateLinear",
        .input_size = berth_call_i64(call, "input_size", 0),
        .output_size = berth_call_i64(call, "output_size", 0),
        .has_bias = berth_call_i64(call, "bias", 0) != 0,
    };
    const berth_value y = builder->linear(builder, &linear, x);
    call->outputs[0] = is_cast && !is_dtype(out_dtype, builder->type(builder, y)->dtype)
                           ? cast(builder, call, y, out_dtype)
                           : y;
}

const berth_layer berth_layer_gate_linear = {
    .size = sizeof(berth_layer),
    .name = "GateLinear",
    .build = build,
};
