// SPDX-License-Identifier: Apache-2.0
// MambaForCausalLM: nothing but selective scans; no attention, no MLP, no positions.
#include "decoder/recurrent.h"

static berth_value mix(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                       berth_value x) {
    const berth_mamba mamba = berth_mamba_sizes(b, decoder);
    return berth_mamba_mix(b, decoder, &mamba,
                           berth_decoder_piece(b, decoder, layer, decoder->names->attention), x);
}

static void build(berth_builder *builder) {
    berth_decoder mamba = {.mix = mix, .ties_embeddings = 1};
    berth_mamba_read(builder, &mamba);
    berth_decoder_build(builder, &mamba);
}

static const berth_weight_rule *const rules[] = {BERTH_MAMBA_RULE};

const berth_model berth_model_mamba = {
    .size = sizeof(berth_model),
    .architecture = "MambaForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
