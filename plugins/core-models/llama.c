// SPDX-License-Identifier: Apache-2.0
// LlamaForCausalLM: Llama and the many models that kept its structure (decoder/decoder.h shows it).
// Attention and MLP may have biases.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder llama = {0};
    berth_decoder_read(builder, &llama);
    llama.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    llama.has_output_bias = llama.has_qkv_bias;
    llama.has_mlp_bias = berth_config_bool_or(builder, "mlp_bias", 0);
    berth_decoder_build(builder, &llama);
}

const berth_model berth_model_llama = {
    .size = sizeof(berth_model),
    .architecture = "LlamaForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
