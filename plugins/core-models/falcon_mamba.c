// SPDX-License-Identifier: Apache-2.0
// FalconMambaForCausalLM: Mamba whose step, input and output of the recurrence are normalised.
#include "decoder/recurrent.h"

static berth_value mix(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                       berth_value x) {
    berth_mamba mamba = berth_mamba_sizes(b, decoder);
    mamba.has_norms = 1;
    mamba.norm_eps = berth_config_f64_or(b, "mixer_rms_eps", 1e-6);
    return berth_mamba_mix(b, decoder, &mamba,
                           berth_decoder_piece(b, decoder, layer, decoder->names->attention), x);
}

static void build(berth_builder *builder) {
    berth_decoder falcon = {.mix = mix, .ties_embeddings = 1};
    berth_mamba_read(builder, &falcon);
    berth_decoder_build(builder, &falcon);
}

static const berth_weight_rule *const rules[] = {BERTH_MAMBA_RULE};

const berth_model berth_model_falcon_mamba = {
    .size = sizeof(berth_model),
    .architecture = "FalconMambaForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
