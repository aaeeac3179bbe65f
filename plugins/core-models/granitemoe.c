// SPDX-License-Identifier: Apache-2.0
// GraniteMoeForCausalLM: Granite with a mixture of experts in every layer.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.mlp = "block_sparse_moe";
    names.router = "router.layer";
    berth_decoder granite = {.names = &names};
    berth_decoder_read(builder, &granite);
    berth_decoder_read_experts(builder, &granite);
    berth_decoder_read_multipliers(builder, &granite);
    granite.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    granite.has_output_bias = granite.has_qkv_bias;
    granite.experts.renormalize = 1;
    berth_decoder_build(builder, &granite);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_QKV_RULES,
    BERTH_DECODER_RULE(".input_linear.", ".experts.w13_", NULL),
    BERTH_DECODER_RULE(".output_linear.", ".experts.w2_", NULL),
};

const berth_model berth_model_granitemoe = {
    .size = sizeof(berth_model),
    .architecture = "GraniteMoeForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
