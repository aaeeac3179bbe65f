// SPDX-License-Identifier: Apache-2.0
// Cohere2ForCausalLM: layers with a sliding window have a rope, the others have none.
#include "decoder/cohere.h"

static void build(berth_builder *builder) {
    berth_decoder_names names;
    berth_decoder cohere2;
    berth_cohere_read(builder, &names, &cohere2, 1e4);
    cohere2.sliding_window = berth_decoder_read_window(builder, 4096);
    cohere2.sliding_period = berth_config_count_or(builder, "sliding_window_pattern", 4);
    cohere2.turns_sliding_only = 1;
    berth_decoder_build(builder, &cohere2);
}

const berth_model berth_model_cohere2 = {
    .size = sizeof(berth_model),
    .architecture = "Cohere2ForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
