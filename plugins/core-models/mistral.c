// SPDX-License-Identifier: Apache-2.0
// MistralForCausalLM: Llama without biases; every layer may have a sliding window.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder mistral = {0};
    berth_decoder_read(builder, &mistral);
    mistral.sliding_window = berth_decoder_read_window(builder, 4096);
    berth_decoder_build(builder, &mistral);
}

const berth_model berth_model_mistral = {
    .size = sizeof(berth_model),
    .architecture = "MistralForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
