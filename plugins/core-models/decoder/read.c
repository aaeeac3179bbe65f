// SPDX-License-Identifier: Apache-2.0
// Input: config.json. Output: the numbers of a decoder, checked against each other, so that the
// graph can be built without a doubt about any of them.
#include "decoder.h"

#include <string.h>

static void check_activation(berth_builder *builder) {
    const char *activation = berth_config_str_or(builder, "hidden_act", "silu");
    if (strcmp(activation, "silu") != 0) {
        berth_build_fail(
            builder, BERTH_UNSUPPORTED,
            "config.json: hidden_act '%s'; this architecture is built with 'silu' only",
            activation);
    }
}

static void check_windows(berth_builder *builder) {
    int64_t window = 0;
    const berth_host *host = builder->host;
    if (berth_config_bool_or(builder, "use_sliding_window", 0) &&
        host->json_get_i64(builder->config, "sliding_window", &window) != BERTH_NOT_FOUND) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "config.json: sliding_window; this architecture is built without one");
    }
    uint64_t count = 0;
    if (host->json_get_count(builder->config, "layer_types", &count) != BERTH_OK) {
        return;
    }
    for (uint64_t i = 0; i < count && !builder->has_failed(builder); ++i) {
        const char *path = berth_build_name(builder, "layer_types.%llu", (unsigned long long)i);
        const char *type = berth_config_str_or(builder, path, "");
        if (strcmp(type, "full_attention") != 0) {
            berth_build_fail(builder, BERTH_UNSUPPORTED,
                             "config.json: %s is '%s'; this architecture is built with "
                             "'full_attention' only",
                             path, type);
        }
    }
}

static void read_heads(berth_builder *builder, berth_decoder *decoder) {
    decoder->num_heads = berth_config_count(builder, "num_attention_heads");
    decoder->num_kv_heads =
        berth_config_count_or(builder, "num_key_value_heads", decoder->num_heads);
    if (decoder->num_heads % decoder->num_kv_heads != 0) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: num_attention_heads %lld is no multiple of "
                         "num_key_value_heads %lld",
                         (long long)decoder->num_heads, (long long)decoder->num_kv_heads);
    }
    // Without head_dim the heads divide the hidden size.
    int64_t given = 0;
    const int64_t rest = decoder->hidden_size % decoder->num_heads;
    if (rest != 0 &&
        builder->host->json_get_i64(builder->config, "head_dim", &given) == BERTH_NOT_FOUND) {
        berth_build_fail(
            builder, BERTH_CORRUPT,
            "config.json: hidden_size %lld is no multiple of num_attention_heads %lld, "
            "and head_dim is missing",
            (long long)decoder->hidden_size, (long long)decoder->num_heads);
    }
    const int64_t whole = (decoder->hidden_size - rest) / decoder->num_heads;
    decoder->head_size = berth_config_count_or(builder, "head_dim", whole > 0 ? whole : 1);
}

static void read_rope(berth_builder *builder, berth_decoder *decoder) {
    const char *type = berth_config_str_or(builder, "rope_parameters.rope_type", "default");
    uint64_t count = 0;
    if (strcmp(type, "default") != 0 ||
        builder->host->json_get_count(builder->config, "rope_parameters.mrope_section", &count) ==
            BERTH_OK) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "config.json: rope_type '%s'%s; this release knows 'default' only", type,
                         count > 0 ? " with mrope_section" : "");
    }
    decoder->rope_theta = berth_config_f64_or(builder, "rope_parameters.rope_theta", 10000);
    const double part = berth_config_f64_or(builder, "rope_parameters.partial_rotary_factor", 1);
    decoder->rotary_dim = part > 0 && part <= 1 ? (int64_t)((double)decoder->head_size * part) : 0;
    if (decoder->rotary_dim < 2 || decoder->rotary_dim % 2 != 0 || !(decoder->rope_theta > 0)) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: no rotary embedding over %g of a head of %lld elements with "
                         "rope_theta %g; the rotated part must be even",
                         part, (long long)decoder->head_size, decoder->rope_theta);
    }
}

berth_decoder berth_decoder_read(berth_builder *builder) {
    berth_decoder decoder = {
        .vocab_size = berth_config_count(builder, "vocab_size"),
        .hidden_size = berth_config_count(builder, "hidden_size"),
        .intermediate_size = berth_config_count(builder, "intermediate_size"),
        .layer_count = berth_config_layer_count(builder, "num_hidden_layers"),
        .max_position = berth_config_count(builder, "max_position_embeddings"),
        .norm_eps = berth_config_f64_or(builder, "rms_norm_eps", 1e-6),
        .ties_embeddings = berth_config_bool_or(builder, "tie_word_embeddings", 0),
    };
    check_activation(builder);
    check_windows(builder);
    read_heads(builder, &decoder);
    read_rope(builder, &decoder);
    return decoder;
}
