// SPDX-License-Identifier: Apache-2.0
// Lfm2ForCausalLM: most layers mix tokens with a short convolution, some with attention whose
// queries and keys are normalised by head.
#include "decoder/parts.h"

#include <string.h>

// The size of the MLP's inside: two thirds of what is given, times a factor, rounded up.
static int64_t adjust(berth_builder *b, int64_t size) {
    if (!berth_config_bool_or(b, "block_auto_adjust_ff_dim", 1)) {
        return size;
    }
    const int64_t multiple = berth_config_count_or(b, "block_multiple_of", 256);
    const double factor = berth_config_f64_or(b, "block_ffn_dim_multiplier", 1);
    const int64_t part = 2 * size / 3; // whole, as the reference has it
    const double scaled = factor * (double)part;
    if (!(scaled >= 1 && scaled <= (double)BERTH_CONFIG_COUNT_MAX)) {
        berth_build_fail(b, BERTH_CORRUPT,
                         "config.json: 'block_ffn_dim_multiplier' is %g: no MLP has that size",
                         factor);
        return size;
    }
    return ((int64_t)scaled + multiple - 1) / multiple * multiple;
}

// By layer_types; files without these may list the layers with attention, else all have it.
static int is_convolution(berth_builder *b, int64_t layer) {
    static const char *const lists[] = {"layer_types", "full_attn_idxs"};
    uint64_t count = 0;
    if (b->host->json_get_count(b->config, lists[0], &count) == BERTH_OK) {
        const char *path = berth_build_name(b, "%s.%lld", lists[0], (long long)layer);
        return strcmp(berth_config_str_or(b, path, "missing"), "conv") == 0;
    }
    return b->host->json_get_count(b->config, lists[1], &count) == BERTH_OK &&
           !berth_decoder_lists(b, lists[1], layer);
}

static berth_value mix(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                       berth_value x) {
    if (!is_convolution(b, layer)) {
        return berth_decoder_attention(b, decoder, layer, x);
    }
    return BERTH_LAYER(
        b, "ShortConv", .prefix = berth_decoder_piece(b, decoder, layer, "conv"), BERTH_INPUTS(x),
        BERTH_ATTRIBUTES(BERTH_I64("dim", decoder->hidden_size),
                         BERTH_I64("conv_L_cache", berth_config_count_or(b, "conv_L_cache", 3)),
                         BERTH_BOOL("conv_bias", berth_config_bool_or(b, "conv_bias", 0))));
}

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.final_norm = "model.embedding_norm";
    names.attention_norm = "operator_norm";
    names.attention_output = "out_proj";
    names.q_norm = "q_layernorm";
    names.k_norm = "k_layernorm";
    names.mlp_norm = "ffn_norm";
    names.mlp = "feed_forward";
    berth_decoder lfm2 = {
        .names = &names,
        .mix = mix,
        .norm_eps = 1e-5,
        .qk_norm = BERTH_QK_NORM_HEAD,
        .ties_embeddings = 1,
        .rope_theta = 1e6,
    };
    berth_decoder_read(builder, &lfm2);
    lfm2.ties_embeddings = berth_config_bool_or(builder, "tie_embedding", lfm2.ties_embeddings);
    lfm2.intermediate_size = berth_config_count_or(builder, "block_ff_dim", lfm2.intermediate_size);
    lfm2.intermediate_size = adjust(builder, lfm2.intermediate_size);
    berth_decoder_build(builder, &lfm2);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_QKV_RULES,
    BERTH_DECODER_RULE(".feed_forward.w1.", ".feed_forward.gate_up_proj.", "0"),
    BERTH_DECODER_RULE(".feed_forward.w3.", ".feed_forward.gate_up_proj.", "1"),
    BERTH_DECODER_RULE(".feed_forward.w2.", ".feed_forward.down_proj.", NULL),
};

const berth_model berth_model_lfm2 = {
    .size = sizeof(berth_model),
    .architecture = "Lfm2ForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
