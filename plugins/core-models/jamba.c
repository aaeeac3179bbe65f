// SPDX-License-Identifier: Apache-2.0
// JambaForCausalLM: most layers mix tokens with Mamba, some with attention without positions; every
// so many layers have experts in place of the MLP.
#include "decoder/recurrent.h"

// Where, in every `period` layers, the one is that config.json means by WHAT_layer_offset.
static int64_t read_offset(berth_builder *b, const char *key, int64_t usual, int64_t period) {
    int64_t offset = usual;
    const berth_status status = b->host->json_get_i64(b->config, key, &offset);
    if ((status != BERTH_OK && status != BERTH_NOT_FOUND) || offset < 0 || offset >= period) {
        berth_build_fail(b, BERTH_CORRUPT, "config.json: '%s' must be 0 to %lld", key,
                         (long long)period - 1);
        return 0;
    }
    return offset;
}

static berth_value mix(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                       berth_value x) {
    const int64_t period = berth_config_count_or(b, "attn_layer_period", 8);
    if (layer % period == read_offset(b, "attn_layer_offset", 4, period)) {
        return berth_decoder_attention(b, decoder, layer, x);
    }
    const berth_mamba mamba = {
        .state_size = berth_config_count_or(b, "mamba_d_state", 16),
        .inner_size = decoder->hidden_size * berth_config_count_or(b, "mamba_expand", 2),
        .step_rank = berth_config_count_or(b, "mamba_dt_rank", (decoder->hidden_size + 15) / 16),
        .conv_width = berth_config_count_or(b, "mamba_d_conv", 4),
        .has_bias = berth_config_bool_or(b, "mamba_proj_bias", 0),
        .has_conv_bias = berth_config_bool_or(b, "mamba_conv_bias", 1),
        .has_norms = 1,
        .norms_have_weights = 1,
        .norm_eps = decoder->norm_eps,
    };
    return berth_mamba_mix(b, decoder, &mamba, berth_decoder_piece(b, decoder, layer, "mamba"), x);
}

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.final_norm = "model.final_layernorm";
    names.mlp_norm = "pre_ff_layernorm";
    names.mlp = "feed_forward";
    names.router = "router";
    berth_decoder jamba = {.names = &names, .mix = mix, .has_no_rope = 1};
    berth_decoder_read(builder, &jamba);
    berth_decoder_read_experts(builder, &jamba);
    jamba.experts.routes_in_f32 = 1;
    jamba.experts.count = jamba.experts.count > 1 ? jamba.experts.count : 0;
    jamba.experts.period = berth_config_count_or(builder, "expert_layer_period", 2);
    jamba.experts.lead = jamba.experts.period - 1 -
                         read_offset(builder, "expert_layer_offset", 1, jamba.experts.period);
    berth_decoder_build(builder, &jamba);
}

static const berth_weight_rule *const rules[] = {
    BERTH_MAMBA_RULE,
    BERTH_DECODER_QKV_RULES,
    BERTH_DECODER_EXPERT_RULES,
    BERTH_DECODER_GATE_RULES,
};

const berth_model berth_model_jamba = {
    .size = sizeof(berth_model),
    .architecture = "JambaForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
