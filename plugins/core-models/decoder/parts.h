// SPDX-License-Identifier: Apache-2.0
// The parts of a decoder's graph. Private to this folder. Shapes: T tokens, H heads, K key heads,
// D elements of a head. `name` is the prefix of a part's tensors.
#ifndef BERTH_DECODER_PARTS_H
#define BERTH_DECODER_PARTS_H

#include "decoder.h"

// The running sum of a decoder, [T, hidden_size]. What was added last waits, so that a norm which
// adds by itself can take it along.
typedef struct berth_stream {
    berth_value sum;
    berth_value waiting; // BERTH_VALUE_NONE: nothing
} berth_stream;

// The whole sum.
berth_value berth_stream_value(berth_builder *builder, const char *name, berth_stream *stream);
// Adds y, times the decoder's residual_scale.
void berth_stream_add(berth_builder *builder, const berth_decoder *decoder, const char *name,
                      berth_stream *stream, berth_value y);
// The norm of the sum; the sum itself without a name.
berth_value berth_stream_norm(berth_builder *builder, const berth_decoder *decoder,
                              const char *name, berth_stream *stream);

// The norm of x over its last dimension; x itself without a name.
berth_value berth_decoder_norm_of(berth_builder *builder, const berth_decoder *decoder,
                                  const char *name, berth_value x);
// Whether a list of config.json, which may be absent, has the layer's number.
int berth_decoder_lists(berth_builder *builder, const char *key, int64_t layer);
// x times a number; x itself for 0 and 1.
berth_value berth_decoder_scale(berth_builder *builder, const char *name, berth_value x,
                                double scale);

// x and the result [T, hidden_size].
berth_value berth_decoder_attention(berth_builder *builder, const berth_decoder *decoder,
                                    int64_t layer, berth_value x);
berth_value berth_decoder_mlp(berth_builder *builder, const berth_decoder *decoder, int64_t layer,
                              berth_value x);
// An MLP of `size`.
berth_value berth_decoder_dense(berth_builder *builder, const berth_decoder *decoder,
                                const char *name, int64_t size, berth_value x);

// hidden_act of x.
berth_value berth_decoder_activate(berth_builder *builder, const berth_decoder *decoder,
                                   const char *name, berth_value x);

// For models that are built of the same parts in another order.
void berth_decoder_describe(berth_builder *builder, const berth_decoder *decoder);
berth_value berth_decoder_embed(berth_builder *builder, const berth_decoder *decoder);
berth_value berth_decoder_head(berth_builder *builder, const berth_decoder *decoder, berth_value x);
// Turns query [T, H, D] and, unless it is BERTH_VALUE_NONE, key [T, K, D] by their tokens'
// positions, as a layer with that window does.
void berth_decoder_rotate(berth_builder *builder, const berth_decoder *decoder, const char *name,
                          int64_t window, berth_value query_key[2]);
// "LAYERS.<layer>.<piece>"; NULL for a piece that is NULL.
const char *berth_decoder_piece(berth_builder *builder, const berth_decoder *decoder, int64_t layer,
                                const char *piece);

#endif
