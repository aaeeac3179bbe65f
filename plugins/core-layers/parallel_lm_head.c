// SPDX-License-Identifier: Apache-2.0
// ParallelLMHead: a score for every token of the vocabulary; ranks divide the vocabulary.
// Input x [rows, embedding_dim]; output [rows, num_embeddings], with several ranks [rows, rows of
// this rank's table].
// Attributes: num_embeddings, embedding_dim (the width of x), bias (0), padding_size (1), tp_size
// (1), tp_rank (0), disable_tp (0), tied_to (none): the prefix of the embedding that shares its
// table.
#include "linear/linear.h"

static void build(berth_builder *builder, const berth_call *call) {
    const berth_world world = berth_world_of(builder, call);
    const berth_value_type *x = builder->type(builder, call->inputs[0]);
    const int64_t tokens = berth_call_i64(call, "num_embeddings", 0);
    const berth_vocabulary whole = {
        .tokens = tokens,
        .padding = berth_call_i64(call, "padding_size", 1),
    };
    const berth_vocab_part part = berth_vocabulary_of(whole, world);
    if (part.rows < 1 && world.size > 1) {
        berth_build_fail(builder, BERTH_INVALID_ARGUMENT,
                         "'%s': %lld tokens, padded to a multiple of %lld, cannot be divided among "
                         "%lld ranks",
                         call->prefix, (long long)tokens, (long long)whole.padding,
                         (long long)world.size);
        return;
    }
    const berth_linear head = {
        .size = sizeof(berth_linear),
        .prefix = call->prefix,
        .alias = berth_call_str(call, "tied_to", NULL),
        .input_size =
            berth_call_i64(call, "embedding_dim", x->ndim > 0 ? x->dims[x->ndim - 1].b : 0),
        .output_size = part.rows,
        .has_bias = berth_call_i64(call, "bias", 0) != 0,
        .layer_class = "ParallelLMHead",
        .stored_output_offset = part.org_padded.offset,
        .stored_output_extent = part.rows == tokens ? 0 : tokens,
    };
    call->outputs[0] = builder->linear(builder, &head, call->inputs[0]);
}

const berth_layer berth_layer_parallel_lm_head = {
    .size = sizeof(berth_layer),
    .name = "ParallelLMHead",
    .build = build,
};
