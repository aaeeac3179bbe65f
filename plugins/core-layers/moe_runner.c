// SPDX-License-Identifier: Apache-2.0
// MoERunner: a mixture of experts: tokens choose, RoutedExperts of the prefix compute, what experts
// for all tokens made is added, ranks are added up.
// Inputs hidden states [tokens, hidden_size], router logits [tokens, num_experts], optionally
// e_score_correction_bias [num_experts] and the shared experts' output [tokens, hidden_size];
// output [tokens, hidden_size].
// Attributes: those of RoutedExperts, and top_k, renormalize (1), use_grouped_topk (0),
// num_expert_group (1), topk_group (1), scoring_func ("softmax"), routed_scaling_factor (1),
// reduce_results (1).
#include "linear/linear.h"

enum { HIDDEN_STATES, ROUTER_LOGITS, E_SCORE_CORRECTION_BIAS, SHARED_OUTPUT };

// The weights and ids of the chosen.
static void route(berth_builder *builder, const berth_call *call, berth_value chosen[2]) {
    const int is_grouped = berth_call_i64(call, "use_grouped_topk", 0) != 0;
    const berth_attribute *const attributes[] = {
        BERTH_I64("topk", berth_call_i64(call, "top_k", 0)),
        BERTH_BOOL("renormalize", berth_call_i64(call, "renormalize", 1)),
        BERTH_TEXT("scoring_func", berth_call_str(call, "scoring_func", "softmax")),
        BERTH_F64("routed_scaling_factor", berth_call_f64(call, "routed_scaling_factor", 1)),
        BERTH_I64("num_expert_group", berth_call_i64(call, "num_expert_group", 1)),
        BERTH_I64("topk_group", berth_call_i64(call, "topk_group", 1)),
    };
    const berth_call router = {
        .size = sizeof(berth_call),
        .name = is_grouped ? "grouped_topk" : "topk_softmax",
        .prefix = call->prefix,
        .inputs = call->inputs + ROUTER_LOGITS,
        .input_count = 2,
        .attributes = attributes,
        .attribute_count = is_grouped ? 6 : 4,
        .outputs = chosen,
        .output_count = 2,
    };
    (void)builder->op(builder, &router);
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_world world = berth_world_of(builder, call);
    const berth_value shared = call->inputs[SHARED_OUTPUT];
    berth_value chosen[2] = {BERTH_VALUE_NONE};
    route(builder, call, chosen);
    berth_value y = BERTH_LAYER(
        builder, "RoutedExperts", .prefix = berth_build_name(builder, "%s.experts", call->prefix),
        BERTH_INPUTS(call->inputs[HIDDEN_STATES], chosen[0], chosen[1]),
        .attributes = call->attributes, .attribute_count = call->attribute_count);
    if (shared != BERTH_VALUE_NONE) {
        y = BERTH_EMIT(builder, "add", .prefix = call->prefix, BERTH_INPUTS(shared, y));
    }
    call->outputs[0] =
        world.size > 1 && berth_call_i64(call, "reduce_results", 1)
            ? BERTH_EMIT(builder, "all_reduce", .prefix = call->prefix, BERTH_INPUTS(y),
                         BERTH_ATTRIBUTES(BERTH_I64("world_size", world.size)))
            : y;
}

const berth_layer berth_layer_moe_runner = {
    .size = sizeof(berth_layer),
    .name = "MoERunner",
    .build = build,
};
