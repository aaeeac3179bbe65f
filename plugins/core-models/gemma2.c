// SPDX-License-Identifier: Apache-2.0
// Gemma2ForCausalLM: every other layer has a sliding window; logits of attention and of tokens are
// capped.
#include "decoder/gemma.h"

static void build(berth_builder *builder) {
    const berth_decoder_names names = berth_gemma2_names();
    berth_decoder gemma2 = {
        .names = &names,
        .norm = BERTH_NORM_RMS_PLUS_ONE,
        .sliding_window = 4096,
        .attention_soft_cap = 50,
        .logit_soft_cap = 30,
    };
    berth_gemma2_read(builder, &gemma2);
    gemma2.sliding_period = 2;
    berth_decoder_build(builder, &gemma2);
}

const berth_model berth_model_gemma2 = {
    .size = sizeof(berth_model),
    .architecture = "Gemma2ForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
