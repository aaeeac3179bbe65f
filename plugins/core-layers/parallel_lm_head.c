// SPDX-License-Identifier: Apache-2.0
// ParallelLMHead: a score for every token of the vocabulary; ranks may divide the vocabulary.
// Input x [rows, embedding_dim]; output [rows, num_embeddings].
// Attributes: num_embeddings, embedding_dim, bias (0), tied_to (none): the prefix of the embedding
// that shares its table.
#include <berth/layer.h>

static void build(berth_builder *builder, const berth_call *call) {
    const berth_linear head = {
        .size = sizeof(berth_linear),
        .prefix = call->prefix,
        .alias = berth_call_str(call, "tied_to", NULL),
        .input_size = berth_call_i64(call, "embedding_dim", 0),
        .output_size = berth_call_i64(call, "num_embeddings", 0),
        .has_bias = berth_call_i64(call, "bias", 0) != 0,
        .layer_class = "ParallelLMHead",
    };
    call->outputs[0] = builder->linear(builder, &head, call->inputs[0]);
}

const berth_layer berth_layer_parallel_lm_head = {
    .size = sizeof(berth_layer),
    .name = "ParallelLMHead",
    .build = build,
};
