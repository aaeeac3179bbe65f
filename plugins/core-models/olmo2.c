// SPDX-License-Identifier: Apache-2.0
// Olmo2ForCausalLM: Llama with norms behind attention and MLP instead of before them, and one norm
// over all heads of queries and of keys.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.attention_norm = NULL;
    names.attention_output_norm = "post_attention_layernorm";
    names.mlp_norm = NULL;
    names.mlp_output_norm = "post_feedforward_layernorm";
    berth_decoder olmo2 = {.names = &names, .norm_eps = 1e-5, .qk_norm = BERTH_QK_NORM_ALL};
    berth_decoder_read(builder, &olmo2);
    olmo2.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    olmo2.has_output_bias = olmo2.has_qkv_bias;
    berth_decoder_build(builder, &olmo2);
}

const berth_model berth_model_olmo2 = {
    .size = sizeof(berth_model),
    .architecture = "Olmo2ForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
