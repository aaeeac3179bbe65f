// SPDX-License-Identifier: Apache-2.0
// GPT2LMHeadModel: learned positions instead of a rope, norms of the mean, an MLP without a gate;
// matrices are stored [inputs, outputs].
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = {
        .embedding = "transformer.wte",
        .positions = "transformer.wpe",
        .layers = "transformer.h",
        .final_norm = "transformer.ln_f",
        .head = "lm_head",
        .attention_norm = "ln_1",
        .attention = "attn",
        .mlp_norm = "ln_2",
        .mlp = "mlp",
        .qkv = "c_attn",
        .attention_output = "c_proj",
        .up = "c_fc",
        .down = "c_proj",
    };
    berth_decoder gpt2 = {
        .names = &names,
        .norm = BERTH_NORM_MEAN,
        .has_norm_bias = 1,
        .norm_eps = 1e-5,
        .has_no_gate = 1,
        .activation = "gelu_new",
        .has_no_rope = 1,
        .ties_embeddings = 1,
        .has_qkv_bias = 1,
        .has_output_bias = 1,
        .has_mlp_bias = 1,
    };
    berth_decoder_read(builder, &gpt2);
    gpt2.attention_scale = berth_config_bool_or(builder, "scale_attn_weights", 1) ? 0 : 1;
    gpt2.scale_falls = berth_config_bool_or(builder, "scale_attn_by_inverse_layer_idx", 0);
    berth_decoder_build(builder, &gpt2);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_TRANSPOSED(".c_attn.", ".c_attn."),
    BERTH_DECODER_TRANSPOSED(".c_proj.", ".c_proj."),
    BERTH_DECODER_TRANSPOSED(".c_fc.", ".c_fc."),
    BERTH_DECODER_RULE(".attn.bias", NULL, NULL), // masks, which old files hold
    BERTH_DECODER_RULE(".attn.masked_bias", NULL, NULL),
};

const berth_model berth_model_gpt2 = {
    .size = sizeof(berth_model),
    .architecture = "GPT2LMHeadModel",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
