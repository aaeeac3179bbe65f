// SPDX-License-Identifier: Apache-2.0
// Starcoder2ForCausalLM: norms of the mean, biases everywhere, an MLP without a gate; all layers
// may have a sliding window.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.up = "c_fc";
    names.down = "c_proj";
    berth_decoder starcoder2 = {
        .names = &names,
        .norm = BERTH_NORM_MEAN,
        .has_norm_bias = 1,
        .norm_eps = 1e-5,
        .has_no_gate = 1,
        .activation = "gelu_pytorch_tanh",
        .ties_embeddings = 1,
    };
    berth_decoder_read(builder, &starcoder2);
    starcoder2.sliding_window = berth_decoder_read_window(builder, 0);
    starcoder2.has_qkv_bias = berth_config_bool_or(builder, "use_bias", 1);
    starcoder2.has_output_bias = starcoder2.has_qkv_bias;
    starcoder2.has_mlp_bias = starcoder2.has_qkv_bias;
    berth_decoder_build(builder, &starcoder2);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_QKV_RULES,
};

const berth_model berth_model_starcoder2 = {
    .size = sizeof(berth_model),
    .architecture = "Starcoder2ForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
