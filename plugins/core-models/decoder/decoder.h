// SPDX-License-Identifier: Apache-2.0
// The decoder that Llama made common, with a switch for everything in which its descendants differ.
// Private to core-models.
//
//   x = embed(token_ids)
//   for each layer:   x, r = norm(x, r)     r: the running sum, "residual"
//                     x = attention(x)
//                     x, r = norm(x, r)
//                     x = mlp(x)
//   logits = lm_head(norm(x, r))
#ifndef BERTH_DECODER_H
#define BERTH_DECODER_H

#include <berth/model.h>

#define BERTH_DECODER_ROPE_MAX 16

typedef struct berth_decoder {
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t intermediate_size; // of the MLP
    int64_t layer_count;
    int64_t num_heads;
    int64_t num_kv_heads;
    int64_t head_size;
    int64_t context_length; // tokens of the longest sequence
    double norm_eps;
    int64_t ties_embeddings;                      // the head is the embedding table
    berth_attribute rope[BERTH_DECODER_ROPE_MAX]; // of rotary_embedding
    uint64_t rope_count;

    // Set by the architecture; 0 is Llama without biases and windows.
    int64_t has_qkv_bias;
    int64_t has_output_bias;     // of attention
    int64_t has_mlp_bias;        // gate, up and down
    int64_t has_qk_norm;         // a norm per head on queries and keys, before they are rotated
    int64_t sliding_window;      // tokens that a layer with a window sees, 0: no layer has one
    int64_t first_sliding_layer; // the layers from here on have it, unless layer_types says which
} berth_decoder;

// What config.json of all these architectures says in the same words. Refuses what the decoder
// cannot do, naming it: other activations and rope types.
berth_decoder berth_decoder_read(berth_builder *builder);
// `sliding_window` of config.json, 0 when it is absent or null.
int64_t berth_decoder_read_window(berth_builder *builder);
// The same where `use_sliding_window` turns it on, for the layers from `max_window_layers` on.
void berth_decoder_read_windows(berth_builder *builder, berth_decoder *decoder);
// The rope attributes and context_length from rope_parameters; refuses a type that the op lacks.
void berth_decoder_read_rope(berth_builder *builder, berth_decoder *decoder);
// The window of one layer, 0: none. Refuses kinds of layers that the decoder does not know.
int64_t berth_decoder_window(berth_builder *builder, const berth_decoder *decoder, int64_t layer);
void berth_decoder_build(berth_builder *builder, const berth_decoder *decoder);

// q_proj, k_proj and v_proj fill qkv_proj; gate_proj and up_proj fill gate_up_proj.
#define BERTH_DECODER_RULES 6
extern const berth_weight_rule *const berth_decoder_rules[BERTH_DECODER_RULES];

#endif
