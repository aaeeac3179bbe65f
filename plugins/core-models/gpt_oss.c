// SPDX-License-Identifier: Apache-2.0
// GptOssForCausalLM: a learned sink in every head, every other layer with a sliding window, experts
// with biases and a clamped SwiGLU, stored [inputs, outputs].
#include "decoder/decoder.h"

static const berth_attribute usual_rope[] = {
    {.name = "rope_type",                        .kind = BERTH_ATTRIBUTE_STR,  .str = "yarn"},
    {.name = "factor",                           .kind = BERTH_ATTRIBUTE_F64,  .f64 = 32    },
    {.name = "beta_fast",                        .kind = BERTH_ATTRIBUTE_F64,  .f64 = 32    },
    {.name = "beta_slow",                        .kind = BERTH_ATTRIBUTE_F64,  .f64 = 1     },
    {.name = "truncate",                         .kind = BERTH_ATTRIBUTE_BOOL, .i64 = 0     },
    {.name = "original_max_position_embeddings", .kind = BERTH_ATTRIBUTE_I64,  .i64 = 4096  },
};

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.router = "router";
    berth_decoder oss = {
        .names = &names,
        .norm_eps = 1e-5,
        .rope_theta = 15e4,
        .usual_rope = usual_rope,
        .usual_rope_count = sizeof usual_rope / sizeof usual_rope[0],
    };
    berth_decoder_read(builder, &oss);
    berth_decoder_read_experts(builder, &oss);
    oss.sliding_window = berth_decoder_read_window(builder, 128);
    oss.sliding_period = 2;
    oss.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 1);
    oss.has_output_bias = oss.has_qkv_bias;
    oss.has_sinks = 1;
    oss.experts.has_bias = 1;
    oss.experts.renormalize = 1;
    oss.experts.activation = "swigluoai";
    oss.experts.limit = berth_config_f64_or(builder, "swiglu_limit", 7);
    oss.experts.alpha = berth_config_f64_or(builder, "swiglu_alpha", 1.702);
    berth_decoder_build(builder, &oss);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_QKV_RULES,
    BERTH_DECODER_RULE(".experts.gate_up_proj_", ".experts.w13_", NULL), // bias, blocks, scales
    BERTH_DECODER_RULE(".experts.down_proj_", ".experts.w2_", NULL),
    BERTH_DECODER_TRANSPOSED(".experts.gate_up_proj", ".experts.w13_weight"),
    BERTH_DECODER_TRANSPOSED(".experts.down_proj", ".experts.w2_weight"),
};

const berth_model berth_model_gpt_oss = {
    .size = sizeof(berth_model),
    .architecture = "GptOssForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
