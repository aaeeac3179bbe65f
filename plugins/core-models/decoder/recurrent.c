// SPDX-License-Identifier: Apache-2.0
// Input: config.json and the sizes of a mixer. Output: the numbers of a decoder, the mixer's layer.
#include "recurrent.h"

const berth_decoder_names berth_mamba_names = {
    .embedding = "backbone.embeddings",
    .layers = "backbone.layers",
    .final_norm = "backbone.norm_f",
    .head = "lm_head",
    .attention_norm = "norm",
    .attention = "mixer",
};

void berth_mamba_read(berth_builder *builder, berth_decoder *decoder) {
    decoder->names = &berth_mamba_names;
    decoder->vocab_size = berth_config_count(builder, "vocab_size");
    decoder->hidden_size = berth_config_count(builder, "hidden_size");
    decoder->layer_count = berth_config_layer_count(builder, "num_hidden_layers");
    decoder->context_length =
        berth_config_count_or(builder, "max_position_embeddings", BERTH_RECURRENT_LENGTH);
    decoder->norm_eps = berth_config_f64_or(builder, "layer_norm_epsilon", 1e-5);
    decoder->ties_embeddings =
        berth_config_bool_or(builder, "tie_word_embeddings", decoder->ties_embeddings);
}

berth_mamba berth_mamba_sizes(berth_builder *b, const berth_decoder *decoder) {
    const int64_t inner = decoder->hidden_size * berth_config_count_or(b, "expand", 2);
    return (berth_mamba){
        .state_size = berth_config_count_or(b, "state_size", 16),
        .inner_size = berth_config_count_or(b, "intermediate_size", inner),
        .step_rank = berth_config_count_or(b, "time_step_rank", (decoder->hidden_size + 15) / 16),
        .conv_width = berth_config_count_or(b, "conv_kernel", 4),
        .has_bias = berth_config_bool_or(b, "use_bias", 0),
        .has_conv_bias = berth_config_bool_or(b, "use_conv_bias", 1),
    };
}

berth_value berth_mamba_mix(berth_builder *b, const berth_decoder *decoder,
                            const berth_mamba *mamba, const char *name, berth_value x) {
    return BERTH_LAYER(
        b, "MambaMixer", .prefix = name, BERTH_INPUTS(x),
        BERTH_ATTRIBUTES(BERTH_I64("hidden_size", decoder->hidden_size),
                         BERTH_I64("ssm_state_size", mamba->state_size),
                         BERTH_I64("conv_kernel_size", mamba->conv_width),
                         BERTH_I64("intermediate_size", mamba->inner_size),
                         BERTH_I64("time_step_rank", mamba->step_rank),
                         BERTH_BOOL("use_conv_bias", mamba->has_conv_bias),
                         BERTH_BOOL("use_bias", mamba->has_bias),
                         BERTH_BOOL("use_rms_norm", mamba->has_norms),
                         BERTH_BOOL("rms_norm_has_weight", mamba->norms_have_weights),
                         BERTH_F64("rms_norm_eps", mamba->norm_eps),
                         BERTH_TEXT("activation", berth_config_str_or(b, "hidden_act", "silu"))));
}

#define NO_LIMIT 3e38 // Infinity is no number of JSON, so what is none there is this

berth_value berth_mamba2_mix(berth_builder *b, const berth_decoder *decoder,
                             const berth_mamba2 *mamba, const char *name, berth_value x) {
    double limit[] = {0, NO_LIMIT}; // of the time step
    (void)b->host->json_get_f64(b->config, "time_step_limit.0", &limit[0]);
    (void)b->host->json_get_f64(b->config, "time_step_limit.1", &limit[1]);
    return BERTH_LAYER(
        b, "MambaMixer2", .prefix = name, BERTH_INPUTS(x),
        BERTH_ATTRIBUTES(
            BERTH_I64("hidden_size", decoder->hidden_size),
            BERTH_I64("ssm_state_size", mamba->state_size),
            BERTH_I64("conv_kernel_size", mamba->conv_width),
            BERTH_I64("intermediate_size", mamba->inner_size), BERTH_I64("n_groups", mamba->groups),
            BERTH_I64("num_heads", mamba->heads), BERTH_I64("head_dim", mamba->head_size),
            BERTH_I64("chunk_size", mamba->chunk_size),
            BERTH_BOOL("use_conv_bias", mamba->has_conv_bias),
            BERTH_BOOL("use_bias", mamba->has_bias), BERTH_BOOL("use_rms_norm", mamba->has_norm),
            BERTH_BOOL("norm_before_gate", mamba->norm_before_gate),
            BERTH_F64("rms_norm_eps", decoder->norm_eps),
            BERTH_TEXT("activation", berth_config_str_or(b, "hidden_act", "silu")),
            BERTH_ATTRIBUTE_("multipliers", BERTH_ATTRIBUTE_F64S, .f64s = mamba->multipliers,
                             .count = mamba->multipliers[0] != 0 ? 5 : 0),
            BERTH_ATTRIBUTE_("dt_limit", BERTH_ATTRIBUTE_F64S, .f64s = limit,
                             .count = limit[0] > 0 || limit[1] < NO_LIMIT ? 2 : 0)));
}
