// SPDX-License-Identifier: Apache-2.0
// Input: the numbers of a decoder. Output: its graph, layer by layer.
#include "parts.h"

const char *berth_decoder_piece(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                                const char *piece) {
    return piece == NULL
               ? NULL
               : berth_build_name(b, "%s.%lld.%s", decoder->names->layers, (long long)layer, piece);
}

// The table of token embeddings and, where positions are learned, theirs.
berth_value berth_decoder_embed(berth_builder *b, const berth_decoder *decoder) {
    const berth_decoder_names *names = decoder->names;
    const berth_value x = BERTH_LAYER(
        b, "VocabParallelEmbedding", .prefix = names->embedding,
        BERTH_INPUTS(b->input(b, "token_ids")),
        BERTH_ATTRIBUTES(BERTH_I64("num_embeddings", decoder->vocab_size),
                         BERTH_I64("embedding_dim", decoder->hidden_size),
                         BERTH_TEXT("tied_to", decoder->ties_embeddings ? names->head : NULL)));
    if (names->positions == NULL) {
        return berth_decoder_scale(b, names->embedding, x, decoder->embedding_scale);
    }
    const berth_value place =
        BERTH_LAYER(b, "VocabParallelEmbedding", .prefix = names->positions,
                    BERTH_INPUTS(b->input(b, "positions")),
                    BERTH_ATTRIBUTES(BERTH_I64("num_embeddings", decoder->context_length),
                                     BERTH_I64("embedding_dim", decoder->hidden_size)));
    return BERTH_EMIT(b, "add", .prefix = names->embedding, BERTH_INPUTS(x, place));
}

berth_value berth_decoder_head(berth_builder *b, const berth_decoder *decoder, berth_value x) {
    const char *tied_to = decoder->ties_embeddings ? decoder->names->embedding : NULL;
    return BERTH_LAYER(
        b, "LogitsProcessor", .prefix = decoder->names->head, BERTH_INPUTS(x),
        BERTH_ATTRIBUTES(BERTH_I64("num_embeddings", decoder->vocab_size),
                         BERTH_I64("embedding_dim", decoder->hidden_size),
                         BERTH_BOOL("bias", decoder->has_head_bias), BERTH_TEXT("tied_to", tied_to),
                         BERTH_F64("scale", decoder->logit_scale > 0 ? decoder->logit_scale : 1),
                         BERTH_F64("soft_cap", decoder->logit_soft_cap)));
}

// One layer adds what attention makes of the sum, and then, or beside it, what the MLP does.
static void add_layer(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                      berth_stream *stream) {
    const berth_decoder_names *names = decoder->names;
    const char *attention = berth_decoder_piece(b, decoder, layer, names->attention);
    const char *mlp = berth_decoder_piece(b, decoder, layer, names->mlp);
    const char *mlp_norm = berth_decoder_piece(b, decoder, layer, names->mlp_norm);
    const berth_value x = berth_stream_norm(
        b, decoder, berth_decoder_piece(b, decoder, layer, names->attention_norm), stream);
    berth_value y = (decoder->mix ? decoder->mix : berth_decoder_attention)(b, decoder, layer, x);
    if (decoder->is_parallel) {
        const berth_value own =
            mlp_norm ? berth_decoder_norm_of(b, decoder, mlp_norm, stream->sum) : x;
        y = BERTH_EMIT(b, "add", .prefix = attention,
                       BERTH_INPUTS(y, berth_decoder_mlp(b, decoder, layer, own)));
        berth_stream_add(b, decoder, attention, stream, y);
        return;
    }
    y = berth_decoder_norm_of(
        b, decoder, berth_decoder_piece(b, decoder, layer, names->attention_output_norm), y);
    berth_stream_add(b, decoder, attention, stream, y);
    if (mlp == NULL) {
        return;
    }
    y = (decoder->feed ? decoder->feed : berth_decoder_mlp)(
        b, decoder, layer, berth_stream_norm(b, decoder, mlp_norm, stream));
    y = berth_decoder_norm_of(b, decoder,
                              berth_decoder_piece(b, decoder, layer, names->mlp_output_norm), y);
    berth_stream_add(b, decoder, mlp, stream, y);
}

void berth_decoder_describe(berth_builder *b, const berth_decoder *decoder) {
    const berth_model_description description = {
        .size = sizeof(berth_model_description),
        .vocab_size = decoder->vocab_size,
        .hidden_size = decoder->hidden_size,
        .max_model_len = decoder->context_length,
        .layer_count = decoder->layer_count,
    };
    b->describe(b, &description);
}

void berth_decoder_build(berth_builder *b, const berth_decoder *decoder) {
    berth_decoder_describe(b, decoder);
    berth_stream stream = {.sum = berth_decoder_embed(b, decoder)};
    for (int64_t i = 0; i < decoder->layer_count; ++i) {
        add_layer(b, decoder, i, &stream);
    }
    const berth_value x = berth_stream_norm(b, decoder, decoder->names->final_norm, &stream);
    b->output(b, "logits", berth_decoder_head(b, decoder, x));
}

const berth_weight_rule *const berth_decoder_rules[BERTH_DECODER_RULES] = {
    BERTH_DECODER_QKV_RULES,
    BERTH_DECODER_EXPERT_RULES,
    BERTH_DECODER_GATE_RULES,
};
