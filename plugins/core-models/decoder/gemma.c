// SPDX-License-Identifier: Apache-2.0
// Input: config.json of a Gemma model. Output: the decoder that it is.
#include "gemma.h"

#include <math.h>
#include <string.h>

void berth_gemma_read(berth_builder *builder, berth_decoder *gemma) {
    gemma->activation = "gelu_pytorch_tanh";
    gemma->ties_embeddings = 1;
    berth_decoder_read(builder, gemma);
    gemma->activation = berth_config_str_or(builder, "hidden_activation", gemma->activation);
    if (strcmp(gemma->activation, "gelu") == 0) { // what old files call the other one
        gemma->activation = "gelu_pytorch_tanh";
    }
    gemma->embedding_scale = sqrt((double)gemma->hidden_size);
    gemma->has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    gemma->has_output_bias = gemma->has_qkv_bias;
}

berth_decoder_names berth_gemma2_names(void) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.attention_output_norm = "post_attention_layernorm";
    names.mlp_norm = "pre_feedforward_layernorm";
    names.mlp_output_norm = "post_feedforward_layernorm";
    return names;
}

// One rope for all layers, or one for those with a window and one for the others. The length is
// that of config.json, which counts the stretching in.
static void read_ropes(berth_builder *builder, berth_decoder *gemma) {
    const int64_t length = gemma->context_length;
    uint64_t count = 0;
    if (builder->host->json_get_count(builder->config, "rope_parameters.full_attention", &count) !=
        BERTH_OK) {
        berth_decoder_read_rope(builder, gemma, "rope_parameters", &gemma->rope);
    } else {
        berth_decoder_read_rope(builder, gemma, "rope_parameters.full_attention", &gemma->rope);
        berth_decoder_read_rope(builder, gemma, "rope_parameters.sliding_attention",
                                &gemma->sliding_rope);
    }
    gemma->context_length = length;
}

void berth_gemma2_read(berth_builder *builder, berth_decoder *gemma) {
    gemma->has_no_rope = 1; // yet
    berth_gemma_read(builder, gemma);
    read_ropes(builder, gemma);
    gemma->sliding_window = berth_decoder_read_window(builder);
    gemma->attention_scale =
        1 / sqrt((double)berth_config_count_or(builder, "query_pre_attn_scalar", 256));
    gemma->attention_soft_cap = berth_config_f64_or(builder, "attn_logit_softcapping", 0);
    gemma->logit_soft_cap = berth_config_f64_or(builder, "final_logit_softcapping", 0);
}
