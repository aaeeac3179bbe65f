// SPDX-License-Identifier: Apache-2.0
// LogitsProcessor: the logits of those rows that somebody wants to sample from. Its prefix is that
// of the head, whose attributes it hands on.
// Input hidden states [tokens, embedding_dim]; output [logits rows, org_vocab_size].
// Attributes: those of ParallelLMHead, org_vocab_size (num_embeddings: what is behind is cut off),
// soft_cap (0: none) and scale (1), in this order; logits_as_input (0): the input are logits of all
// ranks, and there is no head.
#include "linear/linear.h"

// What is not the head's.
static const char *const own[] = {"org_vocab_size", "soft_cap", "scale", "logits_as_input"};

// Rows of logits from the head, those of all ranks together.
static berth_value project(berth_builder *builder, const berth_call *call, berth_value wanted) {
    const berth_world world = berth_world_of(builder, call);
    const berth_attribute *attributes[BERTH_MAX_HANDED];
    const uint64_t count = berth_call_without(call, own, sizeof own / sizeof own[0], attributes);
    const berth_value logits =
        BERTH_LAYER(builder, "ParallelLMHead", .prefix = call->prefix, BERTH_INPUTS(wanted),
                    .attributes = attributes, .attribute_count = count);
    return world.size > 1
               ? BERTH_EMIT(builder, "all_gather", .prefix = call->prefix, BERTH_INPUTS(logits),
                            BERTH_ATTRIBUTES(BERTH_I64("world_size", world.size)))
               : logits;
}

static void build(berth_builder *builder, const berth_call *call) {
    const int64_t tokens = berth_call_i64(call, "num_embeddings", 0);
    const int64_t kept = berth_call_i64(call, "org_vocab_size", tokens);
    const double scale = berth_call_f64(call, "scale", 1);
    const double cap = berth_call_f64(call, "soft_cap", 0);
    const berth_value rows = builder->input(builder, "logits_rows");
    berth_value logits = BERTH_EMIT(builder, "select_rows", .prefix = call->prefix,
                                    BERTH_INPUTS(call->inputs[0], rows));
    if (!berth_call_i64(call, "logits_as_input", 0)) {
        logits = project(builder, call, logits);
    }
    const berth_value_type *type = builder->type(builder, logits);
    if (type->ndim == 2 && type->dims[1].b != kept) {
        logits = builder->slice(builder, logits, 1, 0, kept);
    }
    if (scale != 1 || cap != 0) {
        logits =
            BERTH_EMIT(builder, "scale_logits", .prefix = call->prefix, BERTH_INPUTS(logits),
                       BERTH_ATTRIBUTES(BERTH_F64("scale", scale), BERTH_F64("soft_cap", cap)));
    }
    call->outputs[0] = logits;
}

const berth_layer berth_layer_logits_processor = {
    .size = sizeof(berth_layer),
    .name = "LogitsProcessor",
    .build = build,
};
