// SPDX-License-Identifier: Apache-2.0
// Models of other families than Llama that tools/make-checkpoint writes at their real width: what
// config.json says and which tensors they have. Only layers and vocabulary can be cut.
#ifndef BERTH_MAKE_CHECKPOINT_H
#define BERTH_MAKE_CHECKPOINT_H

#include <stdint.h>

typedef enum place {
    EVERYWHERE,  // a tensor of every layer
    FIRST_LAYER, // of the first
    LATER_LAYERS,
    OUTSIDE, // of no layer
} place;

// A tensor. Its rows and columns may be VOCABULARY; without rows it is a vector, all of it `value`.
typedef struct part {
    place place;
    int64_t copies; // one for each expert, whose number stands for '#'; 0: one
    const char *name;
    int64_t rows;
    int64_t columns;
    double value;
    int64_t is_convolution; // [rows, 1, columns]
} part;

typedef struct model {
    const char *name;
    const char *layers; // what their names begin with
    const char *config; // all but the numbers of layers and tokens
    const part *parts;
    uint64_t part_count;
} model;

#define VOCABULARY  (-1)
#define ATTENTION   "self_attn."
#define PARTS(list) .parts = (list), .part_count = sizeof(list) / sizeof(list)[0]
#define MATRIX(where, of_name, of_rows, of_columns)                                                \
    { .place = (where), .name = (of_name), .rows = (of_rows), .columns = (of_columns) }
#define EXPERTS(where, of_count, of_name, of_rows, of_columns)                                     \
    {                                                                                              \
        .place = (where), .copies = (of_count), .name = (of_name), .rows = (of_rows),              \
        .columns = (of_columns)                                                                    \
    }
#define VECTOR(where, of_name, of_columns, of_value)                                               \
    { .place = (where), .name = (of_name), .columns = (of_columns), .value = (of_value) }

static const part olmoe_parts[] = {
    MATRIX(OUTSIDE, "model.embed_tokens.weight", VOCABULARY, 2048),
    MATRIX(OUTSIDE, "lm_head.weight", VOCABULARY, 2048),
    VECTOR(OUTSIDE, "model.norm.weight", 2048, 1),
    VECTOR(EVERYWHERE, "input_layernorm.weight", 2048, 1),
    VECTOR(EVERYWHERE, "post_attention_layernorm.weight", 2048, 1),
    VECTOR(EVERYWHERE, ATTENTION "q_norm.weight", 2048, 1),
    VECTOR(EVERYWHERE, ATTENTION "k_norm.weight", 2048, 1),
    MATRIX(EVERYWHERE, ATTENTION "q_proj.weight", 2048, 2048),
    MATRIX(EVERYWHERE, ATTENTION "k_proj.weight", 2048, 2048),
    MATRIX(EVERYWHERE, ATTENTION "v_proj.weight", 2048, 2048),
    MATRIX(EVERYWHERE, ATTENTION "o_proj.weight", 2048, 2048),
    MATRIX(EVERYWHERE, "mlp.gate.weight", 64, 2048),
    EXPERTS(EVERYWHERE, 64, "mlp.experts.#.gate_proj.weight", 1024, 2048),
    EXPERTS(EVERYWHERE, 64, "mlp.experts.#.up_proj.weight", 1024, 2048),
    EXPERTS(EVERYWHERE, 64, "mlp.experts.#.down_proj.weight", 2048, 1024),
};

// One layer is nearly all of it.
#define NARROW_PARTS(INNER)                                                                        \
    MATRIX(OUTSIDE, "model.embed_tokens.weight", VOCABULARY, 1024),                                \
        MATRIX(OUTSIDE, "lm_head.weight", VOCABULARY, 1024),                                       \
        VECTOR(OUTSIDE, "model.norm.weight", 1024, 1),                                             \
        VECTOR(EVERYWHERE, "input_layernorm.weight", 1024, 1),                                     \
        VECTOR(EVERYWHERE, "post_attention_layernorm.weight", 1024, 1),                            \
        VECTOR(EVERYWHERE, ATTENTION "q_norm.weight", 1024, 1),                                    \
        VECTOR(EVERYWHERE, ATTENTION "k_norm.weight", 1024, 1),                                    \
        MATRIX(EVERYWHERE, ATTENTION "q_proj.weight", 1024, 1024),                                 \
        MATRIX(EVERYWHERE, ATTENTION "k_proj.weight", 1024, 1024),                                 \
        MATRIX(EVERYWHERE, ATTENTION "v_proj.weight", 1024, 1024),                                 \
        MATRIX(EVERYWHERE, ATTENTION "o_proj.weight", 1024, 1024),                                 \
        MATRIX(EVERYWHERE, "mlp.gate.weight", 24, 1024),                                           \
        EXPERTS(EVERYWHERE, 24, "mlp.experts.#.gate_proj.weight", INNER, 1024),                    \
        EXPERTS(EVERYWHERE, 24, "mlp.experts.#.up_proj.weight", INNER, 1024),                      \
        EXPERTS(EVERYWHERE, 24, "mlp.experts.#.down_proj.weight", 1024, INNER)

static const part olmoe_narrow_parts[] = {NARROW_PARTS(1000)}; // no expert's rows are whole panels
static const part olmoe_grouped_parts[] = {NARROW_PARTS(992)}; // whole groups of 32

static const part deepseek_parts[] = {
    MATRIX(OUTSIDE, "model.embed_tokens.weight", VOCABULARY, 2048),
    MATRIX(OUTSIDE, "lm_head.weight", VOCABULARY, 2048),
    VECTOR(OUTSIDE, "model.norm.weight", 2048, 1),
    VECTOR(EVERYWHERE, "input_layernorm.weight", 2048, 1),
    VECTOR(EVERYWHERE, "post_attention_layernorm.weight", 2048, 1),
    MATRIX(EVERYWHERE, ATTENTION "q_proj.weight", 3072, 2048),
    MATRIX(EVERYWHERE, ATTENTION "kv_a_proj_with_mqa.weight", 576, 2048),
    VECTOR(EVERYWHERE, ATTENTION "kv_a_layernorm.weight", 512, 1),
    MATRIX(EVERYWHERE, ATTENTION "kv_b_proj.weight", 4096, 512),
    MATRIX(EVERYWHERE, ATTENTION "o_proj.weight", 2048, 2048),
    MATRIX(FIRST_LAYER, "mlp.gate_proj.weight", 10944, 2048),
    MATRIX(FIRST_LAYER, "mlp.up_proj.weight", 10944, 2048),
    MATRIX(FIRST_LAYER, "mlp.down_proj.weight", 2048, 10944),
    MATRIX(LATER_LAYERS, "mlp.gate.weight", 64, 2048),
    EXPERTS(LATER_LAYERS, 64, "mlp.experts.#.gate_proj.weight", 1408, 2048),
    EXPERTS(LATER_LAYERS, 64, "mlp.experts.#.up_proj.weight", 1408, 2048),
    EXPERTS(LATER_LAYERS, 64, "mlp.experts.#.down_proj.weight", 2048, 1408),
    MATRIX(LATER_LAYERS, "mlp.shared_experts.gate_proj.weight", 2816, 2048),
    MATRIX(LATER_LAYERS, "mlp.shared_experts.up_proj.weight", 2816, 2048),
    MATRIX(LATER_LAYERS, "mlp.shared_experts.down_proj.weight", 2048, 2816),
};

// Why: with a step of about 0.02 a state outlives fifty tokens, longer than a convolution does.
static const part mamba2_parts[] = {
    MATRIX(OUTSIDE, "backbone.embeddings.weight", VOCABULARY, 2560),
    MATRIX(OUTSIDE, "lm_head.weight", VOCABULARY, 2560),
    VECTOR(OUTSIDE, "backbone.norm_f.weight", 2560, 1),
    VECTOR(EVERYWHERE, "norm.weight", 2560, 1),
    VECTOR(EVERYWHERE, "mixer.A_log", 80, 0),
    VECTOR(EVERYWHERE, "mixer.D", 80, 1),
    VECTOR(EVERYWHERE, "mixer.dt_bias", 80, -4),
    VECTOR(EVERYWHERE, "mixer.norm.weight", 5120, 1),
    VECTOR(EVERYWHERE, "mixer.conv1d.bias", 5376, 0),
    {
                                                .place = EVERYWHERE,
                                                .name = "mixer.conv1d.weight",
                                                .rows = 5376,
                                                .columns = 4,
                                                .is_convolution = 1,
                                                },
    MATRIX(EVERYWHERE, "mixer.in_proj.weight", 10576, 2560),
    MATRIX(EVERYWHERE, "mixer.out_proj.weight", 2560, 5120),
};

#define NARROW_CONFIG(inner)                                                                       \
    "\"architectures\": [\"OlmoeForCausalLM\"], \"model_type\": \"olmoe\", "                       \
    "\"hidden_size\": 1024, \"intermediate_size\": " inner ", \"num_attention_heads\": 8, "        \
    "\"num_key_value_heads\": 8, \"num_experts\": 24, \"num_experts_per_tok\": 2, "                \
    "\"norm_topk_prob\": false, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "               \
    "\"max_position_embeddings\": 4096, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false"

static const model models[] = {
    {
     .name = "olmoe-1b-7b",
     .layers = "model.layers",
     .config =
            "\"architectures\": [\"OlmoeForCausalLM\"], \"model_type\": \"olmoe\", "
            "\"hidden_size\": 2048, \"intermediate_size\": 1024, \"num_attention_heads\": 16, "
            "\"num_key_value_heads\": 16, \"num_experts\": 64, \"num_experts_per_tok\": 8, "
            "\"norm_topk_prob\": false, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
            "\"max_position_embeddings\": 4096, \"rope_theta\": 10000.0, "
            "\"tie_word_embeddings\": false",                                      PARTS(olmoe_parts),
     },
    {
     .name = "deepseek-v2-lite",
     .layers = "model.layers",
     .config =
            "\"architectures\": [\"DeepseekV2ForCausalLM\"], \"model_type\": \"deepseek_v2\", "
            "\"hidden_size\": 2048, \"intermediate_size\": 10944, \"num_attention_heads\": 16, "
            "\"num_key_value_heads\": 16, \"kv_lora_rank\": 512, \"q_lora_rank\": null, "
            "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "
            "\"n_routed_experts\": 64, \"n_shared_experts\": 2, \"num_experts_per_tok\": 6, "
            "\"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 1, "
            "\"topk_method\": \"greedy\", \"norm_topk_prob\": false, "
            "\"routed_scaling_factor\": 1.0, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06, "
            "\"max_position_embeddings\": 163840, \"rope_theta\": 10000.0, \"rope_scaling\": "
            "{\"type\": \"yarn\", \"factor\": 40, \"beta_fast\": 32, \"beta_slow\": 1, "
            "\"mscale\": 0.707, \"mscale_all_dim\": 0.707, "
            "\"original_max_position_embeddings\": 4096}, \"tie_word_embeddings\": false",                                                   PARTS(deepseek_parts),
     },
    {
     .name = "mamba2-2.7b",
     .layers = "backbone.layers",
     .config = "\"architectures\": [\"Mamba2ForCausalLM\"], \"model_type\": \"mamba2\", "
                  "\"hidden_size\": 2560, \"state_size\": 128, \"expand\": 2, \"num_heads\": 80, "
                  "\"head_dim\": 64, \"n_groups\": 1, \"conv_kernel\": 4, \"chunk_size\": 256, "
                  "\"use_bias\": false, \"use_conv_bias\": true, \"hidden_act\": \"silu\", "
                  "\"layer_norm_epsilon\": 1e-05, \"tie_word_embeddings\": false",                                                                            PARTS(mamba2_parts),
     },
    {
     .name = "olmoe-narrow",
     .layers = "model.layers",
     .config = NARROW_CONFIG("1000"),
     PARTS(olmoe_narrow_parts),
     },
    {
     .name = "olmoe-grouped",
     .layers = "model.layers",
     .config = NARROW_CONFIG("992"),
     PARTS(olmoe_grouped_parts),
     },
};

#endif
