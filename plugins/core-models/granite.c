// SPDX-License-Identifier: Apache-2.0
// GraniteForCausalLM: Llama with a number of its own for every place where something is scaled.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder granite = {0};
    berth_decoder_read(builder, &granite);
    granite.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    granite.has_output_bias = granite.has_qkv_bias;
    granite.has_mlp_bias = berth_config_bool_or(builder, "mlp_bias", 0);
    berth_decoder_read_multipliers(builder, &granite);
    berth_decoder_build(builder, &granite);
}

const berth_model berth_model_granite = {
    .size = sizeof(berth_model),
    .architecture = "GraniteForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
