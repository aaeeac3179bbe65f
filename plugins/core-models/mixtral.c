// SPDX-License-Identifier: Apache-2.0
// MixtralForCausalLM: Mistral with a mixture of experts in every layer.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.mlp = "block_sparse_moe";
    berth_decoder mixtral = {.names = &names, .norm_eps = 1e-5, .rope_theta = 1e6};
    berth_decoder_read(builder, &mixtral);
    berth_decoder_read_experts(builder, &mixtral);
    mixtral.sliding_window = berth_decoder_read_window(builder, 0);
    mixtral.experts.renormalize = 1;
    berth_decoder_build(builder, &mixtral);
}

const berth_model berth_model_mixtral = {
    .size = sizeof(berth_model),
    .architecture = "MixtralForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
