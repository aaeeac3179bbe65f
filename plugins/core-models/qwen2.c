// SPDX-License-Identifier: Apache-2.0
// Qwen2ForCausalLM: Llama with biases on queries, keys and values; some layers may have a sliding
// window.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder qwen2 = {0};
    berth_decoder_read(builder, &qwen2);
    qwen2.has_qkv_bias = 1;
    berth_decoder_read_windows(builder, &qwen2);
    berth_decoder_build(builder, &qwen2);
}

const berth_model berth_model_qwen2 = {
    .size = sizeof(berth_model),
    .architecture = "Qwen2ForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
