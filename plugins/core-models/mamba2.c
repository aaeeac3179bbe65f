// SPDX-License-Identifier: Apache-2.0
// Mamba2ForCausalLM: nothing but state-space duality; no attention, no MLP, no positions.
#include "decoder/recurrent.h"

static berth_value mix(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                       berth_value x) {
    const berth_mamba2 mamba = {
        .state_size = berth_config_count_or(b, "state_size", 128),
        .inner_size = decoder->hidden_size * berth_config_count_or(b, "expand", 2),
        .heads = berth_config_count_or(b, "num_heads", 128),
        .head_size = berth_config_count_or(b, "head_dim", 64),
        .groups = berth_config_count_or(b, "n_groups", 8),
        .chunk_size = berth_config_count_or(b, "chunk_size", 256),
        .conv_width = berth_config_count_or(b, "conv_kernel", 4),
        .has_bias = berth_config_bool_or(b, "use_bias", 0),
        .has_conv_bias = berth_config_bool_or(b, "use_conv_bias", 1),
        .has_norm = 1,
    };
    return berth_mamba2_mix(b, decoder, &mamba,
                            berth_decoder_piece(b, decoder, layer, decoder->names->attention), x);
}

static void build(berth_builder *builder) {
    berth_decoder mamba2 = {.mix = mix};
    berth_mamba_read(builder, &mamba2);
    berth_decoder_build(builder, &mamba2);
}

static const berth_weight_rule *const rules[] = {BERTH_MAMBA_RULE};

const berth_model berth_model_mamba2 = {
    .size = sizeof(berth_model),
    .architecture = "Mamba2ForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
