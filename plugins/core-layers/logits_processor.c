// SPDX-License-Identifier: Apache-2.0
// LogitsProcessor: the logits of those rows that somebody wants to sample from. Its prefix is that
// of the head, whose attributes it hands on.
// Input hidden states [tokens, embedding_dim]; output [logits rows, num_embeddings].
// Attributes: those of ParallelLMHead, and scale (1) and soft_cap (0: none), of which only the
// defaults can be built so far.
#include <berth/layer.h>

static void build(berth_builder *builder, const berth_call *call) {
    if (berth_call_f64(call, "scale", 1) != 1 || berth_call_f64(call, "soft_cap", 0) != 0) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "LogitsProcessor '%s': a scale or a soft cap of logits", call->prefix);
        return;
    }
    const berth_value rows = builder->input(builder, "logits_rows");
    const berth_value wanted = BERTH_EMIT(builder, "select_rows", .prefix = call->prefix,
                                          BERTH_INPUTS(call->inputs[0], rows));
    call->outputs[0] =
        BERTH_LAYER(builder, "ParallelLMHead", .prefix = call->prefix, BERTH_INPUTS(wanted),
                    .attributes = call->attributes, .attribute_count = call->attribute_count);
}

const berth_layer berth_layer_logits_processor = {
    .size = sizeof(berth_layer),
    .name = "LogitsProcessor",
    .build = build,
};
