// SPDX-License-Identifier: Apache-2.0
// CohereForCausalLM: attention and MLP side by side behind one norm of the mean without a bias;
// every head of queries and keys may have a norm with a weight of its own; neighbouring columns
// turn.
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
    if (berth_config_bool_or(builder, "use_qk_norm", 0)) {
        cohere.qk_norm = BERTH_QK_NORM_OWN_HEAD;
    }
    berth_decoder_build(builder, &cohere);
}

const berth_model berth_model_cohere = {
    .size = sizeof(berth_model),
    .architecture = "CohereForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
