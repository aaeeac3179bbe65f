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

typedef struct berth_decoder {
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t intermediate_size; // of the MLP
    int64_t layer_count;
    int64_t num_heads;
    int64_t num_kv_heads;
    int64_t head_size;
    int64_t rotary_dim; // leading elements of a head that are rotated
    int64_t max_position;
    double rope_theta;
    double norm_eps;
    int64_t ties_embeddings; // the head is the embedding table

    // Set by the architecture; 0 is Llama without biases.
    int64_t has_attention_bias; // q, k, v and o
    int64_t has_mlp_bias;       // gate, up and down
    int64_t has_qk_norm;        // a norm per head on queries and keys, before they are rotated
} berth_decoder;

// What config.json of all these architectures says in the same words. Refuses what the decoder
// cannot do, naming it: other activations, rope types, layers with a sliding window.
berth_decoder berth_decoder_read(berth_builder *builder);
void berth_decoder_build(berth_builder *builder, const berth_decoder *decoder);

// q_proj, k_proj and v_proj fill qkv_proj; gate_proj and up_proj fill gate_up_proj.
#define BERTH_DECODER_RULES 6
extern const berth_weight_rule *const berth_decoder_rules[BERTH_DECODER_RULES];

#endif
