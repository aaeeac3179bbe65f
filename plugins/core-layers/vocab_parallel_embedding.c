// SPDX-License-Identifier: Apache-2.0
// VocabParallelEmbedding: the row of a table for every token; ranks divide the rows.
// Input token ids [tokens]; output [tokens, embedding_dim] in the type of activations. With several
// ranks also the ids as rows of this rank's table and the mask of ids that other ranks have.
// Attributes: num_embeddings, embedding_dim, org_num_embeddings (num_embeddings; those behind are
// added for adapters, their rows zero), padding_size (1: the table as it is stored), reduce_results
// (1), tp_size (1), tp_rank (0), disable_tp (0), tied_to (none): the prefix of a layer under whose
// name the checkpoint may hold the same table.
// With one rank ids are rows, as in vLLM: an added id then reads the row of its number, which is
// padding where the model's tokens do not fill their multiple of padding_size.
#include "linear/linear.h"

static berth_value table(berth_builder *builder, const berth_call *call,
                         const berth_vocab_part *part, int64_t tokens) {
    const char *tied_to = berth_call_str(call, "tied_to", NULL);
    const int64_t shape[] = {part->rows, berth_call_i64(call, "embedding_dim", 0)};
    const berth_parameter parameter = {
        .size = sizeof(berth_parameter),
        .name = berth_build_name(builder, "%s.weight", call->prefix),
        .alias = tied_to ? berth_build_name(builder, "%s.weight", tied_to) : NULL,
        .shape = shape,
        .ndim = 2,
        .output_dim = 0,
        .input_dim = -1,
        .stored_output_offset = part->org_padded.offset,
        .stored_output_extent = part->rows == tokens ? 0 : tokens,
        .stored_output_count = part->org_padded.extent,
    };
    return builder->parameter(builder, &parameter);
}

static berth_value look_up(berth_builder *builder, const berth_call *call, berth_value ids,
                           berth_value weight) {
    return BERTH_EMIT(builder, "embedding", .prefix = call->prefix, BERTH_INPUTS(ids, weight),
                      BERTH_ATTRIBUTES(BERTH_TEXT("out_dtype", builder->activation_dtype)));
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_world world = berth_world_of(builder, call);
    const int64_t all = berth_call_i64(call, "num_embeddings", 0);
    const int64_t tokens = berth_call_i64(call, "org_num_embeddings", all);
    const berth_vocabulary whole = {
        .tokens = tokens,
        .added = all - tokens,
        .padding = berth_call_i64(call, "padding_size", 1),
    };
    const berth_vocab_part part = berth_vocabulary_of(whole, world);
    if ((part.rows < 1 && world.size > 1) || whole.added < 0) {
        berth_build_fail(builder, BERTH_INVALID_ARGUMENT,
                         "'%s': %lld tokens and %lld added ones, padded to multiples of %lld, "
                         "cannot be divided among %lld ranks",
                         call->prefix, (long long)tokens, (long long)whole.added,
                         (long long)whole.padding, (long long)world.size);
        return;
    }
    const berth_value weight = table(builder, call, &part, tokens);
    if (world.size == 1) {
        call->outputs[0] = look_up(builder, call, call->inputs[0], weight);
        return;
    }
    BERTH_EMIT(
        builder, "vocab_parallel_mask", .prefix = call->prefix, BERTH_INPUTS(call->inputs[0]),
        BERTH_ATTRIBUTES(BERTH_I64("org_vocab_start_index", part.org.offset),
                         BERTH_I64("org_vocab_end_index", part.org.offset + part.org.extent),
                         BERTH_I64("num_org_vocab_padding", part.org_padding),
                         BERTH_I64("added_vocab_start_index", part.added.offset),
                         BERTH_I64("added_vocab_end_index", part.added.offset + part.added.extent)),
        .outputs = call->outputs + 1, .output_count = 2);
    const berth_value found = look_up(builder, call, call->outputs[1], weight);
    const berth_value y = BERTH_EMIT(builder, "mask_rows", .prefix = call->prefix,
                                     BERTH_INPUTS(found, call->outputs[2]));
    call->outputs[0] =
        berth_call_i64(call, "reduce_results", 1)
            ? BERTH_EMIT(builder, "all_reduce", .prefix = call->prefix, BERTH_INPUTS(y),
                         BERTH_ATTRIBUTES(BERTH_I64("world_size", world.size)))
            : y;
}

const berth_layer berth_layer_vocab_parallel_embedding = {
    .size = sizeof(berth_layer),
    .name = "VocabParallelEmbedding",
    .build = build,
};
