// SPDX-License-Identifier: Apache-2.0
// GPTNeoXForCausalLM: attention and MLP side by side, each behind its own norm, or one after the
// other; a head's query, key and value stand together in one tensor.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = {
        .embedding = "gpt_neox.embed_in",
        .layers = "gpt_neox.layers",
        .final_norm = "gpt_neox.final_layer_norm",
        .head = "embed_out",
        .attention_norm = "input_layernorm",
        .attention = "attention",
        .mlp_norm = "post_attention_layernorm",
        .mlp = "mlp",
        .qkv = "query_key_value",
        .attention_output = "dense",
        .up = "dense_h_to_4h",
        .down = "dense_4h_to_h",
    };
    berth_decoder neox = {
        .names = &names,
        .norm = BERTH_NORM_MEAN,
        .has_norm_bias = 1,
        .norm_eps = 1e-5,
        .is_parallel = berth_config_bool_or(builder, "use_parallel_residual", 1),
        .has_grouped_qkv = 1,
        .has_no_gate = 1,
        .activation = "gelu",
        .rotary_part = 0.25,
        .has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 1),
        .has_mlp_bias = 1,
    };
    neox.has_output_bias = neox.has_qkv_bias;
    berth_decoder_read(builder, &neox);
    berth_decoder_build(builder, &neox);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_RULE(".rotary_emb.inv_freq", NULL, NULL),
    BERTH_DECODER_RULE(".attention.bias", NULL, NULL), // masks, which old files hold
    BERTH_DECODER_RULE(".attention.masked_bias", NULL, NULL),
};

const berth_model berth_model_gpt_neox = {
    .size = sizeof(berth_model),
    .architecture = "GPTNeoXForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
