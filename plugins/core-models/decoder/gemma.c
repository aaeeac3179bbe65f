// SPDX-License-Identifier: Apache-2.0
// Input: config.json of a Gemma model. Output: the decoder that it is.
#include "gemma.h"

#include <math.h>
#include <string.h>

// Encoders and models of pictures that are made of a Gemma let tokens see later ones.
static void refuse_bidirectional(berth_builder *builder) {
    const char *type = berth_config_str_or(builder, "model_type", "");
    const int is_paligemma = strcmp(type, "paligemma") == 0;
    if (is_paligemma || berth_config_bool_or(builder, "use_bidirectional_attention", 0)) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "config.json: %s: tokens of a prompt attend to later ones; attention of "
                         "this architecture is causal",
                         is_paligemma ? "model_type 'paligemma'" : "use_bidirectional_attention");
    }
}

void berth_gemma_read(berth_builder *builder, berth_decoder *gemma) {
    gemma->activation = "gelu_pytorch_tanh";
    gemma->ties_embeddings = 1;
    refuse_bidirectional(builder);
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
    static const char *const by_kind = "rope_parameters.full_attention";
    const int64_t length = gemma->context_length;
    uint64_t count = 0;
    const int has_kinds =
        builder->host->json_get_count(builder->config, by_kind, &count) == BERTH_OK;
    berth_decoder_read_rope(builder, gemma, has_kinds ? by_kind : "rope_parameters", &gemma->rope);
    if (has_kinds || gemma->rope_theta > 0) {
        gemma->rope_theta = 0;
        berth_decoder_read_rope(builder, gemma, "rope_parameters.sliding_attention",
                                &gemma->sliding_rope);
    }
    gemma->context_length = length;
}

static double read_cap(berth_builder *builder, const char *key, double usual) {
    return berth_decoder_is_null(builder, key) ? 0 : berth_config_f64_or(builder, key, usual);
}

void berth_gemma2_read(berth_builder *builder, berth_decoder *gemma) {
    gemma->has_no_rope = 1; // yet
    berth_gemma_read(builder, gemma);
    read_ropes(builder, gemma);
    gemma->sliding_window = berth_decoder_read_window(builder, gemma->sliding_window);
    gemma->attention_scale =
        1 / sqrt((double)berth_config_count_or(builder, "query_pre_attn_scalar", 256));
    gemma->attention_soft_cap =
        read_cap(builder, "attn_logit_softcapping", gemma->attention_soft_cap);
    gemma->logit_soft_cap = read_cap(builder, "final_logit_softcapping", gemma->logit_soft_cap);
}
