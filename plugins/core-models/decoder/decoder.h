// SPDX-License-Identifier: Apache-2.0
// The decoder that Llama made common, with a switch for everything in which its relatives differ.
// Private to core-models. An architecture sets the switches and the names of its tensors, lets
// berth_decoder_read fill in what config.json says, and builds:
//
//   x = embed(token_ids)
//   for each layer:   x = x + attention(norm(x))    or what an architecture mixes tokens with
//                     x = x + mlp(norm(x))            a dense one, or a mixture of experts
//   logits = head(norm(x))
//
// A norm whose name is NULL is not there; results of attention and MLP may have a norm of their
// own; in a parallel layer the MLP sees what attention sees; an MLP whose name is NULL is not
// there.
#ifndef BERTH_DECODER_H
#define BERTH_DECODER_H

#include <berth/model.h>

#define BERTH_DECODER_ROPE_MAX 24
#define BERTH_DECODER_PAIRS    256 // of a rope with factors of its own

typedef enum berth_decoder_norm {
    BERTH_NORM_RMS,          // x / rms(x) · w
    BERTH_NORM_RMS_PLUS_ONE, // x / rms(x) · (1 + w)
    BERTH_NORM_MEAN,         // (x − mean) / deviation · w, with a bias where the decoder says so
    BERTH_NORM_MEAN_PLUS_ONE, // the same times 1 + w
} berth_decoder_norm;

// The norm of queries and keys before they are rotated.
typedef enum berth_decoder_qk_norm {
    BERTH_QK_NORM_NONE,
    BERTH_QK_NORM_HEAD,     // of every head, all with the same weight
    BERTH_QK_NORM_OWN_HEAD, // of every head, each with a weight of its own
    BERTH_QK_NORM_ALL,      // of all heads as one vector
} berth_decoder_qk_norm;

// How the checkpoint calls the pieces; those of a layer follow LAYERS.<i>, those of attention and
// MLP follow their prefix.
typedef struct berth_decoder_names {
    const char *embedding;
    const char *positions; // the table of learned positions, NULL: none
    const char *layers;
    const char *final_norm;
    const char *head;
    const char *attention_norm;
    const char *attention;
    const char *attention_output_norm;
    const char *mlp_norm;
    const char *mlp;
    const char *mlp_output_norm;
    const char *qkv;
    const char *q_norm;
    const char *k_norm;
    const char *attention_output;
    const char *up; // with a gate that and the gate's projection
    const char *down;
    const char *router;
    const char *shared_experts;
} berth_decoder_names;

// A name for every piece that Llama and its experts have; NULL for the others. What an architecture
// changes in a copy is how it differs.
extern const berth_decoder_names berth_decoder_llama_names;

// The attributes of rotary_embedding; none: no rope.
typedef struct berth_decoder_rope {
    berth_attribute attributes[BERTH_DECODER_ROPE_MAX];
    uint64_t count;
    double factors[2][BERTH_DECODER_PAIRS]; // of type longrope
} berth_decoder_rope;

// A mixture of experts in place of the MLP.
typedef struct berth_decoder_experts {
    int64_t count; // 0: none
    int64_t per_token;
    int64_t size;            // of an expert's inside
    int64_t shared_size;     // of the experts for every token, all together; 0: none
    int64_t has_shared_gate; // these count as much as a gate of their own says
    int64_t first_layer;     // layers before it have an MLP
    int64_t period;          // every so many layers, the last of these,
    int64_t lead;            // or so many before it
    int64_t has_bias;        // router and experts
    int64_t renormalize;     // weights of the chosen sum up to 1
    int64_t has_correction;  // a bias that counts for the choice only
    int64_t group_count;     // 0: no groups
    int64_t groups_per_token;
    int64_t routes_in_f32;
    double scale;
    const char *scoring;    // NULL: "softmax"
    const char *activation; // NULL: hidden_act
    double limit;           // of activation swigluoai, as alpha
    double alpha;
} berth_decoder_experts;

struct berth_decoder;
// What a layer has in place of attention or of its MLP, x and the result [tokens, hidden_size].
typedef berth_value (*berth_decoder_mix_fn)(berth_builder *builder,
                                            const struct berth_decoder *decoder, int64_t layer,
                                            berth_value x);

// Attention over latent rows, where kv_lora_rank is not 0.
typedef struct berth_decoder_latent {
    int64_t q_lora_rank; // 0: none
    int64_t kv_lora_rank;
    int64_t nope_size;
    int64_t rope_size;
    int64_t value_size;
    int64_t has_bias; // of the projections to latent rows and of the output
} berth_decoder_latent;

typedef struct berth_decoder {
    // Set by the architecture before berth_decoder_read; all 0 is Llama without biases and windows.
    const berth_decoder_names *names; // NULL: berth_decoder_llama_names
    berth_decoder_mix_fn mix;         // NULL: attention
    berth_decoder_mix_fn feed;        // NULL: the MLP, or experts
    berth_decoder_norm norm;
    berth_decoder_qk_norm qk_norm;
    int64_t has_norm_bias;
    int64_t is_parallel;      // x + attention(norm(x)) + mlp(norm(x))
    int64_t has_no_gate;      // down(act(up(x))) instead of down(act(gate(x)) * up(x))
    int64_t has_grouped_qkv;  // one tensor: queries, key and value of one key head after the other
    int64_t turns_neighbours; // the rope's pairs are columns 2i and 2i + 1
    int64_t has_no_rope;
    double qkv_limit;   // queries, keys and values are clamped to it; 0: they are not
    double rotary_part; // of a head that turns, unless config.json says; 0: all
    double rope_theta;  // unless config.json says; 0: 10000
    const berth_attribute *usual_rope; // where config.json has no word about ropes, their type and
    uint64_t usual_rope_count;         // its numbers; none: type "default"
    const char *activation;            // hidden_act unless config.json says; NULL: "silu"
    double norm_eps;                   // unless config.json says; 0: 1e-6
    int64_t ties_embeddings;           // the head is the embedding table; unless config.json says

    // From config.json.
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t intermediate_size; // of the MLP
    int64_t layer_count;
    int64_t num_heads;
    int64_t num_kv_heads;
    int64_t head_size;
    int64_t context_length; // tokens of the longest sequence
    berth_decoder_rope rope;
    berth_decoder_rope sliding_rope; // of layers with a window, where it has any attributes

    // Set by the architecture afterwards.
    int64_t has_qkv_bias;
    int64_t has_output_bias; // of attention
    int64_t has_mlp_bias;
    int64_t has_head_bias;
    int64_t has_sinks;           // a learned logit per head without a value
    int64_t sliding_window;      // tokens that a layer with a window sees, 0: no layer has one
    int64_t first_sliding_layer; // the layers from here on have it, unless layer_types says which,
    int64_t end_sliding_layer;   // but for those from here on; 0: none
    int64_t sliding_period;      // of so many layers all but the last have it; 0: all of them
    int64_t turns_sliding_only;  // layers without a window have no rope
    int64_t scale_falls;         // attention_scale is divided by the layer's number, from 1
    double attention_scale;      // 0: 1 / sqrt(head_size)
    double attention_soft_cap;   // 0: none, as below
    double embedding_scale;
    double residual_scale; // of what attention and MLP add
    double logit_scale;
    double logit_soft_cap;
    double threshold; // of hidden_act "fatrelu": what is not above it becomes 0
    double sparsity;  // share of the gates of a gated GELU that are cut off
    berth_decoder_experts experts;
    berth_decoder_latent latent;
} berth_decoder;

// What config.json of all these architectures says, in whichever of the usual words. Refuses what
// the decoder cannot do, naming it: unknown activations and rope types.
void berth_decoder_read(berth_builder *builder, berth_decoder *decoder);
// Whether config.json has null under the key, where that is another thing than not to have it.
int berth_decoder_is_null(berth_builder *builder, const char *key);
// `sliding_window` of config.json; 0 when it is null, `usual` when it is absent.
int64_t berth_decoder_read_window(berth_builder *builder, int64_t usual);
// The same where `use_sliding_window` turns it on, for the layers from `max_window_layers` on.
void berth_decoder_read_windows(berth_builder *builder, berth_decoder *decoder);
// The rope that stands under `key` of config.json; context_length where the rope stretches it.
// Refuses a type that the op lacks.
void berth_decoder_read_rope(berth_builder *builder, berth_decoder *decoder, const char *key,
                             berth_decoder_rope *rope);
// num_experts and num_experts_per_tok; the architecture sets what they are made of.
void berth_decoder_read_experts(berth_builder *builder, berth_decoder *decoder);
// embedding_multiplier, attention_multiplier, residual_multiplier and logits_scaling.
void berth_decoder_read_multipliers(berth_builder *builder, berth_decoder *decoder);
// The window of one layer, 0: none. Refuses kinds of layers that the decoder does not know.
int64_t berth_decoder_window(berth_builder *builder, const berth_decoder *decoder, int64_t layer);
void berth_decoder_build(berth_builder *builder, const berth_decoder *decoder);

// ---- how tensors fill parameters ----------------------------------------------------------------

#define BERTH_DECODER_RULE(from_text, to_text, shard_id)                                           \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (from_text), .to = (to_text),                   \
        .shard = (shard_id),                                                                       \
    }

// The tensor is stored [inputs, outputs].
#define BERTH_DECODER_TRANSPOSED(from_text, to_text)                                               \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (from_text), .to = (to_text),                   \
        .is_transposed = 1,                                                                        \
    }

// q_proj, k_proj and v_proj fill qkv_proj; old files hold what follows from rope_theta, too.
#define BERTH_DECODER_QKV_RULES                                                                    \
    BERTH_DECODER_RULE(".q_proj.", ".qkv_proj.", "q"),                                             \
        BERTH_DECODER_RULE(".k_proj.", ".qkv_proj.", "k"),                                         \
        BERTH_DECODER_RULE(".v_proj.", ".qkv_proj.", "v"),                                         \
        BERTH_DECODER_RULE(".rotary_emb.inv_freq", NULL, NULL)
// gate_proj and up_proj fill gate_up_proj.
#define BERTH_DECODER_GATE_RULES                                                                   \
    BERTH_DECODER_RULE(".gate_proj.", ".gate_up_proj.", "0"),                                      \
        BERTH_DECODER_RULE(".up_proj.", ".gate_up_proj.", "1")
// The tensors of every expert, or of all of them, fill those of all.
#define BERTH_DECODER_EXPERT_RULES                                                                 \
    BERTH_DECODER_RULE(".experts.*.gate_proj.", ".experts.w13_", "w1"),                            \
        BERTH_DECODER_RULE(".experts.*.up_proj.", ".experts.w13_", "w3"),                          \
        BERTH_DECODER_RULE(".experts.*.down_proj.", ".experts.w2_", NULL),                         \
        BERTH_DECODER_RULE(".experts.*.w1.", ".experts.w13_", "w1"),                               \
        BERTH_DECODER_RULE(".experts.*.w3.", ".experts.w13_", "w3"),                               \
        BERTH_DECODER_RULE(".experts.*.w2.", ".experts.w2_", NULL),                                \
        BERTH_DECODER_RULE(".experts.gate_up_proj", ".experts.w13_weight", NULL),                  \
        BERTH_DECODER_RULE(".experts.down_proj", ".experts.w2_weight", NULL)

// All of them.
#define BERTH_DECODER_RULES 14
extern const berth_weight_rule *const berth_decoder_rules[BERTH_DECODER_RULES];

#endif
