// SPDX-License-Identifier: Apache-2.0
// Gemma3ForCausalLM: five layers with a sliding window and a rope of their own to one without; a
// norm on every head of queries and keys.
#include "decoder/gemma.h"

static void build(berth_builder *builder) {
    const berth_decoder_names names = berth_gemma2_names();
    berth_decoder gemma3 = {
        .names = &names,
        .norm = BERTH_NORM_RMS_PLUS_ONE,
        .qk_norm = BERTH_QK_NORM_HEAD,
        .rope_theta = 1e6,
        .sliding_window = 4096,
    };
    berth_gemma2_read(builder, &gemma3);
    gemma3.attention_soft_cap = 0; // norms took its place, whatever config.json still says
    gemma3.sliding_period = berth_config_count_or(builder, "sliding_window_pattern", 6);
    berth_decoder_build(builder, &gemma3);
}

const berth_model berth_model_gemma3 = {
    .size = sizeof(berth_model),
    .architecture = "Gemma3ForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
