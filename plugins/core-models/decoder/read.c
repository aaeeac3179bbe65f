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

static double read_eps(berth_builder *builder) {
    const double eps = berth_config_f64_or(builder, "rms_norm_eps", 1e-6);
    if (!(eps >= 0)) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: 'rms_norm_eps' is %g, must be 0 or more", eps);
    }
    return eps;
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

berth_decoder berth_decoder_read(berth_builder *builder) {
    berth_decoder decoder = {
        .vocab_size = berth_config_count(builder, "vocab_size"),
        .hidden_size = berth_config_count(builder, "hidden_size"),
        .intermediate_size = berth_config_count(builder, "intermediate_size"),
        .layer_count = berth_config_layer_count(builder, "num_hidden_layers"),
        .context_length = berth_config_count(builder, "max_position_embeddings"),
        .norm_eps = read_eps(builder),
        .ties_embeddings = berth_config_bool_or(builder, "tie_word_embeddings", 0),
    };
    check_activation(builder);
    read_heads(builder, &decoder);
    berth_decoder_read_rope(builder, &decoder);
    return decoder;
}

// ---- windows ------------------------------------------------------------------------------------

int64_t berth_decoder_read_window(berth_builder *builder) {
    int64_t window = 0;
    const berth_host *host = builder->host;
    return host->json_get_i64(builder->config, "sliding_window", &window) == BERTH_NOT_FOUND
               ? 0
               : berth_config_count(builder, "sliding_window");
}

void berth_decoder_read_windows(berth_builder *builder, berth_decoder *decoder) {
    int64_t first = 0;
    const char *key = "max_window_layers";
    if (!berth_config_bool_or(builder, "use_sliding_window", 0)) {
        return;
    }
    decoder->sliding_window = berth_decoder_read_window(builder);
    if (builder->host->json_get_i64(builder->config, key, &first) != BERTH_OK || first < 0) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is not a number of layers",
                         key);
    }
    decoder->first_sliding_layer = first;
}

int64_t berth_decoder_window(berth_builder *builder, const berth_decoder *decoder, int64_t layer) {
    uint64_t count = 0;
    if (builder->host->json_get_count(builder->config, "layer_types", &count) != BERTH_OK) {
        return layer < decoder->first_sliding_layer ? 0 : decoder->sliding_window;
    }
    if (count != (uint64_t)decoder->layer_count) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: layer_types lists %llu layers, num_hidden_layers is %lld",
                         (unsigned long long)count, (long long)decoder->layer_count);
    }
    const char *path = berth_build_name(builder, "layer_types.%lld", (long long)layer);
    const char *type = berth_config_str_or(builder, path, "missing");
    const int is_sliding = strcmp(type, "sliding_attention") == 0;
    if (is_sliding && decoder->sliding_window > 0) {
        return decoder->sliding_window;
    }
    if (strcmp(type, "full_attention") != 0) {
        berth_build_fail(builder, BERTH_UNSUPPORTED, "config.json: %s is '%s'%s", path, type,
                         is_sliding ? ", and this architecture is built without a sliding_window"
                                    : "; this architecture knows 'full_attention' and "
                                      "'sliding_attention'");
    }
    return 0;
}
