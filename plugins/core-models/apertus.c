// SPDX-License-Identifier: Apache-2.0
// ApertusForCausalLM: Llama with a norm on every head of queries and keys, and xIELU, an activation
// with learned numbers, without a gate.
#include "decoder/decoder.h"

static const berth_attribute usual_rope[] = {
    {.name = "rope_type",                        .kind = BERTH_ATTRIBUTE_STR, .str = "llama3"},
    {.name = "factor",                           .kind = BERTH_ATTRIBUTE_F64, .f64 = 8       },
    {.name = "low_freq_factor",                  .kind = BERTH_ATTRIBUTE_F64, .f64 = 1       },
    {.name = "high_freq_factor",                 .kind = BERTH_ATTRIBUTE_F64, .f64 = 4       },
    {.name = "original_max_position_embeddings", .kind = BERTH_ATTRIBUTE_I64, .i64 = 8192    },
};

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.attention_norm = "attention_layernorm";
    names.mlp_norm = "feedforward_layernorm";
    names.up = "up_proj";
    berth_decoder apertus = {
        .names = &names,
        .norm_eps = 1e-5,
        .qk_norm = BERTH_QK_NORM_HEAD,
        .has_no_gate = 1,
        .activation = "xielu",
        .rope_theta = 12e6,
        .usual_rope = usual_rope,
        .usual_rope_count = sizeof usual_rope / sizeof usual_rope[0],
    };
    berth_decoder_read(builder, &apertus);
    apertus.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    apertus.has_output_bias = apertus.has_qkv_bias;
    berth_decoder_build(builder, &apertus);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_QKV_RULES,
};

const berth_model berth_model_apertus = {
    .size = sizeof(berth_model),
    .architecture = "ApertusForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
