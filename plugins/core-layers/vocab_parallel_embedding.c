// SPDX-License-Identifier: Apache-2.0
// VocabParallelEmbedding: the row of a table for every token; ranks may divide the rows.
// Input token ids [tokens]; output [tokens, embedding_dim] in the type of activations.
// Attributes: num_embeddings, embedding_dim, tied_to (none): the prefix of a layer under whose name
// the checkpoint may hold the same table.
#include <berth/layer.h>

static void build(berth_builder *builder, const berth_call *call) {
    const char *tied_to = berth_call_str(call, "tied_to", NULL);
    const int64_t shape[] = {
        berth_call_i64(call, "num_embeddings", 0),
        berth_call_i64(call, "embedding_dim", 0),
    };
    const berth_parameter table = {
        .size = sizeof(berth_parameter),
        .name = berth_build_name(builder, "%s.weight", call->prefix),
        .alias = tied_to ? berth_build_name(builder, "%s.weight", tied_to) : NULL,
        .shape = shape,
        .ndim = 2,
        .output_dim = 0,
        .input_dim = -1,
    };
    const berth_value weight = builder->parameter(builder, &table);
    call->outputs[0] = BERTH_EMIT(
        builder, "embedding", .prefix = call->prefix, BERTH_INPUTS(call->inputs[0], weight),
        BERTH_ATTRIBUTES(BERTH_TEXT("out_dtype", builder->activation_dtype)));
}

const berth_layer berth_layer_vocab_parallel_embedding = {
    .size = sizeof(berth_layer),
    .name = "VocabParallelEmbedding",
    .build = build,
};
