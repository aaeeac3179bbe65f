// SPDX-License-Identifier: Apache-2.0
// PhiForCausalLM: attention and MLP side by side behind one norm of the mean, a rope over part of
// each head, biases everywhere, the head included.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.final_norm = "model.final_layernorm";
    names.attention_output = "dense";
    names.q_norm = "q_layernorm";
    names.k_norm = "k_layernorm";
    names.mlp_norm = NULL;
    names.up = "fc1";
    names.down = "fc2";
    berth_decoder phi = {
        .names = &names,
        .norm = BERTH_NORM_MEAN,
        .has_norm_bias = 1,
        .norm_eps = 1e-5,
        .is_parallel = 1,
        .has_no_gate = 1,
        .activation = "gelu_new",
        .rotary_part = 0.5,
        .has_qkv_bias = 1,
        .has_output_bias = 1,
        .has_mlp_bias = 1,
        .has_head_bias = 1,
    };
    if (berth_config_bool_or(builder, "qk_layernorm", 0)) {
        phi.qk_norm = BERTH_QK_NORM_HEAD;
    }
    berth_decoder_read(builder, &phi);
    berth_decoder_build(builder, &phi);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_QKV_RULES,
};

const berth_model berth_model_phi = {
    .size = sizeof(berth_model),
    .architecture = "PhiForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
