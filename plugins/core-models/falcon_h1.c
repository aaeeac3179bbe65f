// SPDX-License-Identifier: Apache-2.0
// FalconH1ForCausalLM: in every layer Mamba-2 and attention side by side, both of the same norm; a
// factor of its own for every place where something is scaled.
#include "decoder/recurrent.h"

#include <math.h>
#include <string.h>

static double factor(berth_builder *b, const char *key) {
    const double value = berth_config_f64_or(b, key, 1);
    if (!isfinite(value) || value == 0) {
        berth_build_fail(b, BERTH_CORRUPT, "config.json: '%s' is %g, must be finite and not 0", key,
                         value);
        return 1;
    }
    return value;
}

static berth_value recur(berth_builder *b, const berth_decoder *decoder, const char *name,
                         berth_value x) {
    berth_mamba2 mamba = {
        .state_size = berth_config_count_or(b, "mamba_d_state", 256),
        .heads = berth_config_count_or(b, "mamba_n_heads", 128),
        .groups = berth_config_count_or(b, "mamba_n_groups", 1),
        .chunk_size = berth_config_count_or(b, "mamba_chunk_size", 256),
        .conv_width = berth_config_count_or(b, "mamba_d_conv", 4),
        .has_bias = berth_config_bool_or(b, "mamba_proj_bias", 0),
        .has_conv_bias = berth_config_bool_or(b, "mamba_conv_bias", 1),
        .has_norm = berth_config_bool_or(b, "mamba_rms_norm", 0),
        .norm_before_gate = berth_config_bool_or(b, "mamba_norm_before_gate", 1),
    };
    const int64_t inner = decoder->hidden_size * berth_config_count_or(b, "mamba_expand", 2);
    mamba.inner_size = berth_config_count_or(b, "mamba_d_ssm", inner);
    mamba.head_size = mamba.inner_size / mamba.heads;
    for (int i = 0; i < 5; ++i) {
        mamba.multipliers[i] = factor(b, berth_build_name(b, "ssm_multipliers.%d", i));
    }
    x = berth_decoder_scale(b, name, x, factor(b, "ssm_in_multiplier"));
    return berth_decoder_scale(b, name, berth_mamba2_mix(b, decoder, &mamba, name, x),
                               factor(b, "ssm_out_multiplier"));
}

static berth_value mix(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                       berth_value x) {
    const char *name = berth_decoder_piece(b, decoder, layer, decoder->names->attention);
    const berth_value seen = berth_decoder_scale(b, name, x, factor(b, "attention_in_multiplier"));
    const berth_value y =
        berth_decoder_scale(b, name, berth_decoder_attention(b, decoder, layer, seen),
                            factor(b, "attention_out_multiplier"));
    const char *mamba = berth_decoder_piece(b, decoder, layer, "mamba");
    return BERTH_EMIT(b, "add", .prefix = mamba, BERTH_INPUTS(recur(b, decoder, mamba, x), y));
}

// down(up(x) · silu(gate(x) · a)) · b. The gate is scaled before it stands beside up, so the
// product is that of the op which has them apart.
static berth_value feed(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                        berth_value x) {
    const char *name = berth_decoder_piece(b, decoder, layer, decoder->names->mlp);
    const int64_t size = decoder->intermediate_size;
    const int64_t sizes[] = {size, size};
    const berth_attribute *bias = BERTH_BOOL("bias", decoder->has_mlp_bias);
    const berth_value all =
        BERTH_LAYER(b, "MergedColumnParallelLinear",
                    .prefix = berth_build_name(b, "%s.gate_up_proj", name), BERTH_INPUTS(x),
                    BERTH_ATTRIBUTES(BERTH_I64("input_size", decoder->hidden_size),
                                     BERTH_I64S("output_sizes", sizes, 2), bias));
    const berth_value gate =
        berth_decoder_scale(b, name, b->slice(b, all, 1, 0, size), factor(b, "mlp_multipliers.0"));
    const berth_value y =
        BERTH_EMIT(b, "mixer2_gated_rms_norm", .prefix = berth_build_name(b, "%s.act_fn", name),
                   BERTH_INPUTS(b->slice(b, all, 1, size, size), gate),
                   BERTH_ATTRIBUTES(BERTH_I64("full_hidden_size", size),
                                    BERTH_I64("full_n_groups", 1), BERTH_BOOL("use_rms_norm", 0)));
    const berth_value down =
        BERTH_LAYER(b, "RowParallelLinear", .prefix = berth_build_name(b, "%s.down_proj", name),
                    BERTH_INPUTS(y),
                    BERTH_ATTRIBUTES(BERTH_I64("input_size", size),
                                     BERTH_I64("output_size", decoder->hidden_size), bias));
    return berth_decoder_scale(b, name, down, factor(b, "mlp_multipliers.1"));
}

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.final_norm = "model.final_layernorm";
    names.mlp_norm = "pre_ff_layernorm";
    names.mlp = "feed_forward";
    berth_decoder falcon = {.names = &names, .mix = mix, .feed = feed, .norm_eps = 1e-5};
    berth_decoder_read(builder, &falcon);
    if (strcmp(falcon.activation, "silu") != 0) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "config.json: hidden_act '%s'; this architecture knows 'silu'",
                         falcon.activation);
    }
    falcon.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    falcon.has_output_bias = falcon.has_qkv_bias;
    falcon.has_mlp_bias = berth_config_bool_or(builder, "mlp_bias", 0);
    falcon.embedding_scale = factor(builder, "embedding_multiplier");
    falcon.logit_scale = factor(builder, "lm_head_multiplier");
    // A factor of every key is one of every product with a query.
    falcon.attention_scale = factor(builder, "key_multiplier") / sqrt((double)falcon.head_size);
    berth_decoder_build(builder, &falcon);
}

static const berth_weight_rule *const rules[] = {
    BERTH_MAMBA_RULE,
    BERTH_DECODER_QKV_RULES,
    BERTH_DECODER_GATE_RULES,
};

const berth_model berth_model_falcon_h1 = {
    .size = sizeof(berth_model),
    .architecture = "FalconH1ForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
