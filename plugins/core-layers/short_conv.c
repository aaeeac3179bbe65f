// SPDX-License-Identifier: Apache-2.0
// ShortConv: a gated convolution over the last few tokens: y = out_proj(C · conv(B · x)).
// Input hidden states [tokens, dim]; output like it.
// Attributes: dim, conv_L_cache (taps), conv_bias (0, of all weights), tp_size (1), tp_rank (0).
// Parameters: in_proj (shards "0": B, "1": C, "2": x), conv [dim, 1, taps], out_proj.
// State per sequence: PREFIX.conv [taps − 1, dim].
// Both products are rounded; the convolution has no activation: vLLM's forward_native.
#include "linear/mixer.h"

static berth_value convolve(const berth_mixer *mixer, int64_t dim, int64_t own, berth_value x) {
    const int64_t width = berth_call_i64(mixer->call, "conv_L_cache", 0);
    const int has_bias = berth_call_i64(mixer->call, "conv_bias", 0) != 0;
    const berth_mixer_weight weight = {
        "conv.weight", {dim, 1, width},
         3, 0, 0
    };
    const berth_mixer_weight bias = {"conv.bias", {dim}, 1, 1, 0};
    const berth_mixer_conv conv = {
        .name = "conv",
        .weight = berth_mixer_parameter(mixer, weight),
        .bias = has_bias ? berth_mixer_parameter(mixer, bias) : BERTH_VALUE_NONE,
        .channels = own,
        .width = width,
        .activation = "",
    };
    return berth_mixer_convolve(mixer, conv, x);
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_mixer mixer = berth_mixer_of(builder, call);
    const int64_t dim = berth_call_i64(call, "dim", 0);
    const int64_t own = berth_world_part(builder, call, mixer.world, "dim", dim).extent;
    const int64_t sizes[] = {dim, dim, dim};
    const int has_bias = berth_call_i64(call, "conv_bias", 0) != 0;
    const berth_value all = BERTH_LAYER(
        builder, "MergedColumnParallelLinear", .prefix = berth_mixer_name(&mixer, "in_proj"),
        BERTH_INPUTS(call->inputs[0]),
        BERTH_ATTRIBUTES(BERTH_I64("input_size", dim), BERTH_I64S("output_sizes", sizes, 3),
                         BERTH_BOOL("bias", has_bias), BERTH_I64("tp_size", mixer.world.size),
                         BERTH_I64("tp_rank", mixer.world.rank)));
    const berth_value x = BERTH_EMIT(builder, "mul", .prefix = call->prefix,
                                     BERTH_INPUTS(berth_mixer_columns(&mixer, all, 0, own),
                                                  berth_mixer_columns(&mixer, all, 2 * own, own)));
    const berth_value q = convolve(&mixer, dim, own, x);
    const berth_value y = BERTH_EMIT(builder, "mul", .prefix = call->prefix,
                                     BERTH_INPUTS(berth_mixer_columns(&mixer, all, own, own), q));
    const berth_mixer_linear linear = {
        .layer_class = "RowParallelLinear",
        .name = "out_proj",
        .input_size = dim,
        .output_size = dim,
        .has_bias = has_bias,
    };
    call->outputs[0] = berth_mixer_project(&mixer, linear, y);
}

const berth_layer berth_layer_short_conv = {
    .size = sizeof(berth_layer),
    .name = "ShortConv",
    .build = build,
};
