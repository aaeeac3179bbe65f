// SPDX-License-Identifier: Apache-2.0
// GPTJForCausalLM: attention and MLP side by side behind one norm of the mean; neighbouring columns
// turn, in the first rotary_dim of each head; the head has a bias.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = {
        .embedding = "transformer.wte",
        .layers = "transformer.h",
        .final_norm = "transformer.ln_f",
        .head = "lm_head",
        .attention_norm = "ln_1",
        .attention = "attn",
        .mlp = "mlp",
        .qkv = "qkv_proj",
        .attention_output = "out_proj",
        .up = "fc_in",
        .down = "fc_out",
    };
    berth_decoder gptj = {
        .names = &names,
        .norm = BERTH_NORM_MEAN,
        .has_norm_bias = 1,
        .norm_eps = 1e-5,
        .is_parallel = 1,
        .has_no_gate = 1,
        .activation = "gelu_new",
        .has_no_rope = 1, // yet: its width is given in columns
        .turns_neighbours = 1,
        .has_mlp_bias = 1,
        .has_head_bias = 1,
    };
    berth_decoder_read(builder, &gptj);
    gptj.rotary_part = (double)berth_config_count_or(builder, "rotary_dim", gptj.head_size) /
                       (double)gptj.head_size;
    berth_decoder_read_rope(builder, &gptj, "rope_parameters", &gptj.rope);
    berth_decoder_build(builder, &gptj);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_QKV_RULES,
    BERTH_DECODER_RULE(".attn.bias", NULL, NULL), // masks, which old files hold
    BERTH_DECODER_RULE(".attn.masked_bias", NULL, NULL),
};

const berth_model berth_model_gptj = {
    .size = sizeof(berth_model),
    .architecture = "GPTJForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
