// SPDX-License-Identifier: Apache-2.0
// GemmaForCausalLM: Llama with Gemma's norms, embeddings and MLP.
#include "decoder/gemma.h"

static void build(berth_builder *builder) {
    berth_decoder gemma = {.norm = BERTH_NORM_RMS_PLUS_ONE};
    berth_gemma_read(builder, &gemma);
    berth_decoder_build(builder, &gemma);
}

const berth_model berth_model_gemma = {
    .size = sizeof(berth_model),
    .architecture = "GemmaForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
