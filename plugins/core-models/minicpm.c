// SPDX-License-Identifier: Apache-2.0
// MiniCPMForCausalLM: Llama whose embeddings, residuals and logits are scaled by the depth and
// width that it has beside those of the model whose hyperparameters it took over.
#include "decoder/decoder.h"

#include <math.h>

static void build(berth_builder *builder) {
    berth_decoder minicpm = {.ties_embeddings = 1};
    berth_decoder_read(builder, &minicpm);
    minicpm.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    minicpm.has_output_bias = minicpm.has_qkv_bias;
    minicpm.threshold = berth_config_f64_or(builder, "hidden_act_param", 0);
    minicpm.embedding_scale = berth_config_f64_or(builder, "scale_emb", 1);
    minicpm.residual_scale =
        berth_config_f64_or(builder, "scale_depth", 1) / sqrt((double)minicpm.layer_count);
    minicpm.logit_scale =
        berth_config_f64_or(builder, "dim_model_base", 1) / (double)minicpm.hidden_size;
    berth_decoder_build(builder, &minicpm);
}

const berth_model berth_model_minicpm = {
    .size = sizeof(berth_model),
    .architecture = "MiniCPMForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
