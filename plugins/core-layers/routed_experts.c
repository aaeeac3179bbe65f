// SPDX-License-Identifier: Apache-2.0
// RoutedExperts: the experts of a mixture, for tokens that have been given theirs.
// Inputs x [tokens, hidden_size], topk_weights and topk_ids [tokens, k]; output [tokens,
// hidden_size], of several ranks each one's share of a sum.
// Attributes: num_experts, hidden_size, intermediate_size, activation ("silu"), has_bias (0),
// apply_router_weight_on_input (0), swiglu_limit (7), swiglu_alpha (1.702), swiglu_beta (1),
// tp_size (1), tp_rank (0), enable_expert_parallel (0).
// Weights by way of the quantization method, of two stacks of layers: w13 [experts, 2 inter,
// hidden], the gate's rows (shard "w1") and then the up projection's ("w3"), by turns for
// swigluoai, no gate for the activations that have none; w2 [experts, hidden, inter]; with has_bias
// also w13_bias and w2_bias.
// Ranks divide the inner size, every expert is everywhere; with enable_expert_parallel they divide
// the experts. The bias of w2 is the first rank's, since ranks are added up.
#include "linear/linear.h"

#include <string.h>

typedef struct experts {
    const berth_call *call;
    berth_world world;
    int is_by_expert; // ranks have whole experts
    int has_gate;
    int is_in_turns;
    berth_part experts;
    berth_part inner;
    int64_t all_experts;
    int64_t all_inner;
    int64_t hidden;
} experts;

static experts read(berth_builder *builder, const berth_call *call) {
    const char *activation = berth_call_str(call, "activation", "silu");
    experts self = {
        .call = call,
        .world = berth_world_of(builder, call),
        .is_by_expert = berth_call_i64(call, "enable_expert_parallel", 0) != 0,
        .has_gate = strstr(activation, "_no_mul") == NULL,
        .is_in_turns = strcmp(activation, "swigluoai") == 0,
        .all_experts = berth_call_i64(call, "num_experts", 0),
        .all_inner = berth_call_i64(call, "intermediate_size", 0),
        .hidden = berth_call_i64(call, "hidden_size", 0),
    };
    self.experts.extent = self.all_experts;
    self.inner.extent = self.all_inner;
    if (self.is_by_expert) {
        self.experts = berth_world_part(builder, call, self.world, "num_experts", self.all_experts);
    } else {
        self.inner =
            berth_world_part(builder, call, self.world, "intermediate_size", self.all_inner);
    }
    return self;
}

// One of the two layers of every expert; a rank of whole experts has some of the stack.
static berth_linear stack_of(berth_builder *builder, const experts *self, const char *name) {
    berth_linear out = {
        .size = sizeof(berth_linear),
        .prefix = berth_build_name(builder, "%s.%s", self->call->prefix, name),
        .layer_class = "RoutedExperts",
        .has_bias = berth_call_i64(self->call, "has_bias", 0) != 0,
        .stack_size = self->experts.extent,
    };
    if (self->is_by_expert && self->world.size > 1) {
        out.stored_slice_offset = self->experts.offset;
        out.stored_slice_extent = self->all_experts;
    }
    return out;
}

// w13: the rank's rows of the gate, then those of the up projection, which are `shards`.
static berth_linear w13(berth_builder *builder, const experts *self,
                        const berth_shard *const *shards) {
    const int64_t halves = 1 + self->has_gate;
    berth_linear out = stack_of(builder, self, "w13");
    out.input_size = self->hidden;
    out.output_size = halves * self->inner.extent;
    if (self->has_gate && !self->is_in_turns) {
        out.shards = shards;
        out.shard_count = 2;
    } else if (!self->is_by_expert && self->world.size > 1) {
        out.stored_output_offset = halves * self->inner.offset;
        out.stored_output_extent = halves * self->all_inner;
    }
    return out;
}

// Its bias is the first rank's, where ranks are added up.
static berth_linear w2(berth_builder *builder, const experts *self) {
    berth_linear out = stack_of(builder, self, "w2");
    out.input_size = self->inner.extent;
    out.output_size = self->hidden;
    if (!self->is_by_expert && self->world.size > 1) {
        out.stored_input_offset = self->inner.offset;
        out.stored_input_extent = self->all_inner;
    }
    if (out.has_bias && !self->is_by_expert && self->world.rank > 0) {
        builder->ignore(builder, berth_build_name(builder, "%s.w2_bias", self->call->prefix));
        out.has_bias = 0;
    }
    return out;
}

static void build(berth_builder *builder, const berth_call *call) {
    const experts self = read(builder, call);
    const berth_shard gate = berth_shard_part("w1", 0, self.inner, self.all_inner);
    const berth_shard up = berth_shard_part("w3", self.inner.extent, self.inner, self.all_inner);
    const berth_shard *const shards[] = {&gate, &up};
    const berth_linear first = w13(builder, &self, shards);
    const berth_linear second = w2(builder, &self);
    const berth_attribute *const attributes[] = {
        BERTH_TEXT("activation", berth_call_str(call, "activation", "silu")),
        BERTH_BOOL("apply_router_weight_on_input",
                   berth_call_i64(call, "apply_router_weight_on_input", 0)),
        BERTH_F64("swiglu_limit", berth_call_f64(call, "swiglu_limit", 7)),
        BERTH_F64("swiglu_alpha", berth_call_f64(call, "swiglu_alpha", 1.702)),
        BERTH_F64("swiglu_beta", berth_call_f64(call, "swiglu_beta", 1)),
    };
    berth_value ids = call->inputs[2];
    if (self.is_by_expert && self.world.size > 1) {
        ids = BERTH_EMIT(builder, "local_expert_ids", .prefix = call->prefix, BERTH_INPUTS(ids),
                         BERTH_ATTRIBUTES(BERTH_I64("first", self.experts.offset),
                                          BERTH_I64("count", self.experts.extent)));
    }
    const berth_experts mixture = {
        .size = sizeof(berth_experts),
        .prefix = call->prefix,
        .w13 = &first,
        .w2 = &second,
        .x = call->inputs[0],
        .topk_weights = call->inputs[1],
        .topk_ids = ids,
        .attributes = attributes,
        .attribute_count = sizeof attributes / sizeof attributes[0],
    };
    call->outputs[0] = builder->experts(builder, &mixture);
}

const berth_layer berth_layer_routed_experts = {
    .size = sizeof(berth_layer),
    .name = "RoutedExperts",
    .build = build,
};
