// SPDX-License-Identifier: Apache-2.0
// FusedMoE: a mixture of experts under the name that models know; MoERunner with the same inputs
// and attributes.
#include <berth/layer.h>

static void build(berth_builder *builder, const berth_call *call) {
    call->outputs[0] =
        BERTH_LAYER(builder, "MoERunner", .prefix = call->prefix, .inputs = call->inputs,
                    .input_count = call->input_count, .attributes = call->attributes,
                    .attribute_count = call->attribute_count);
}

const berth_layer berth_layer_fused_moe = {
    .size = sizeof(berth_layer),
    .name = "FusedMoE",
    .build = build,
};
