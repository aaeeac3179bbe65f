// SPDX-License-Identifier: Apache-2.0
// NemotronForCausalLM: norms of the mean whose weights are stored less 1, a squared ReLU without a
// gate, and a rope over part of each head.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.up = "up_proj";
    berth_decoder nemotron = {
        .names = &names,
        .norm = BERTH_NORM_MEAN_PLUS_ONE,
        .has_norm_bias = 1,
        .norm_eps = 1e-5,
        .has_no_gate = 1,
        .activation = "relu2",
        .rotary_part = 0.5,
    };
    berth_decoder_read(builder, &nemotron);
    nemotron.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    nemotron.has_output_bias = nemotron.has_qkv_bias;
    nemotron.has_mlp_bias = berth_config_bool_or(builder, "mlp_bias", 0);
    berth_decoder_build(builder, &nemotron);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_QKV_RULES,
};

const berth_model berth_model_nemotron = {
    .size = sizeof(berth_model),
    .architecture = "NemotronForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
