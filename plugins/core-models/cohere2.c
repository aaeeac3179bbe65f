// SPDX-License-Identifier: Apache-2.0
// Cohere2ForCausalLM: Cohere without norms of queries and keys; layers with a sliding window have a
// rope, the others have none.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.mlp_norm = NULL;
    berth_decoder cohere = {
        .names = &names,
        .norm = BERTH_NORM_MEAN,
        .norm_eps = 1e-5,
        .is_parallel = 1,
        .turns_neighbours = 1,
        .ties_embeddings = 1,
    };
    berth_decoder_read(builder, &cohere);
    cohere.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    cohere.has_output_bias = cohere.has_qkv_bias;
    cohere.logit_scale = berth_config_f64_or(builder, "logit_scale", 0.0625);
    cohere.sliding_window = berth_decoder_read_window(builder);
    cohere.sliding_period = berth_config_count_or(builder, "sliding_window_pattern", 4);
    cohere.turns_sliding_only = 1;
    berth_decoder_build(builder, &cohere);
}

const berth_model berth_model_cohere2 = {
    .size = sizeof(berth_model),
    .architecture = "Cohere2ForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
