// SPDX-License-Identifier: Apache-2.0
// Phi3ForCausalLM: Llama stored with fused tensors; all layers may have a sliding window, and the
// rope may have factors of its own for every pair.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder phi3 = {.norm_eps = 1e-5};
    berth_decoder_read(builder, &phi3);
    phi3.sliding_window = berth_decoder_read_window(builder, 0);
    berth_decoder_build(builder, &phi3);
}

const berth_model berth_model_phi3 = {
    .size = sizeof(berth_model),
    .architecture = "Phi3ForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
