// SPDX-License-Identifier: Apache-2.0
// Input: config.json. Output: the numbers of a decoder, checked against each other, so that the
// graph can be built without a doubt about any of them.
#include "parts.h"

#include <string.h>

static int is_given(berth_builder *builder, const char *key) {
    double number = 0;
    return builder->host->json_get_f64(builder->config, key, &number) != BERTH_NOT_FOUND;
}

int berth_decoder_is_null(berth_builder *builder, const char *key) {
    const berth_json *found = NULL;
    return builder->host->json_get_member(builder->config, key, &found) == BERTH_OK &&
           !is_given(builder, key);
}

// The first of two spellings that config.json has, the usual one when it has neither.
static const char *spelling(berth_builder *builder, const char *usual, const char *other) {
    return !is_given(builder, usual) && is_given(builder, other) ? other : usual;
}

static double read_eps(berth_builder *builder, const berth_decoder *decoder) {
    static const char *const others[] = {"layer_norm_eps", "norm_eps", "layer_norm_epsilon",
                                         "norm_epsilon"};
    const char *key = "rms_norm_eps";
    for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
        key = spelling(builder, key, others[i]);
    }
    const double eps =
        berth_config_f64_or(builder, key, decoder->norm_eps > 0 ? decoder->norm_eps : 1e-6);
    if (!(eps >= 0)) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is %g, must be 0 or more", key,
                         eps);
    }
    return eps;
}

static void read_heads(berth_builder *builder, berth_decoder *decoder) {
    const char *heads = spelling(builder, "num_attention_heads", "n_head");
    decoder->num_heads = berth_config_count(builder, heads);
    decoder->num_kv_heads =
        berth_config_count_or(builder, "num_key_value_heads", decoder->num_heads);
    if (decoder->num_heads % decoder->num_kv_heads != 0) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: %s %lld is no multiple of num_key_value_heads %lld", heads,
                         (long long)decoder->num_heads, (long long)decoder->num_kv_heads);
    }
    // Without head_dim the heads divide the hidden size.
    int64_t given = 0;
    const int64_t rest = decoder->hidden_size % decoder->num_heads;
    if (rest != 0 &&
        builder->host->json_get_i64(builder->config, "head_dim", &given) == BERTH_NOT_FOUND) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: hidden_size %lld is no multiple of %s %lld, and head_dim "
                         "is missing",
                         (long long)decoder->hidden_size, heads, (long long)decoder->num_heads);
    }
    const int64_t whole = (decoder->hidden_size - rest) / decoder->num_heads;
    decoder->head_size = berth_config_count_or(builder, "head_dim", whole > 0 ? whole : 1);
}

// Four times the width where nothing is said, as in GPT-2.
static int64_t read_intermediate(berth_builder *builder, const berth_decoder *decoder) {
    const char *width = spelling(builder, "hidden_size", "n_embd");
    const char *key = strcmp(width, "n_embd") == 0
                          ? "n_inner"
                          : spelling(builder, "intermediate_size", "block_ff_dim");
    uint64_t count = 0;
    if (builder->host->json_get_count(builder->config, key, &count) == BERTH_OK) {
        return berth_config_count(builder, "intermediate_size.0"); // one for each layer
    }
    return strcmp(key, "n_inner") == 0
               ? berth_config_count_or(builder, key, 4 * decoder->hidden_size)
               : berth_config_count(builder, key);
}

void berth_decoder_read(berth_builder *builder, berth_decoder *decoder) {
    const char *fallback = decoder->activation ? decoder->activation : "silu";
    decoder->names = decoder->names ? decoder->names : &berth_decoder_llama_names;
    decoder->vocab_size = berth_config_count(builder, "vocab_size");
    decoder->hidden_size = berth_config_count(builder, spelling(builder, "hidden_size", "n_embd"));
    decoder->intermediate_size = read_intermediate(builder, decoder);
    decoder->layer_count =
        berth_config_layer_count(builder, spelling(builder, "num_hidden_layers", "n_layer"));
    decoder->context_length =
        berth_config_count(builder, spelling(builder, "max_position_embeddings", "n_positions"));
    decoder->norm_eps = read_eps(builder, decoder);
    decoder->ties_embeddings =
        berth_config_bool_or(builder, "tie_word_embeddings", decoder->ties_embeddings);
    decoder->activation = berth_config_str_or(
        builder, spelling(builder, "hidden_act", "activation_function"), fallback);
    read_heads(builder, decoder);
    if (!decoder->has_no_rope) {
        berth_decoder_read_rope(builder, decoder, "rope_parameters", &decoder->rope);
    }
}

void berth_decoder_read_experts(berth_builder *builder, berth_decoder *decoder) {
    const char *count = spelling(builder, "num_experts", "num_local_experts");
    decoder->experts.count =
        berth_config_count(builder, spelling(builder, count, "n_routed_experts"));
    decoder->experts.per_token = berth_config_count(builder, "num_experts_per_tok");
    decoder->experts.size = berth_config_count(
        builder, spelling(builder, "moe_intermediate_size", "intermediate_size"));
    if (decoder->experts.per_token > decoder->experts.count) {
        berth_build_fail(builder, BERTH_CORRUPT,
                         "config.json: num_experts_per_tok is %lld, there are %lld experts",
                         (long long)decoder->experts.per_token, (long long)decoder->experts.count);
    }
}

void berth_decoder_read_multipliers(berth_builder *builder, berth_decoder *decoder) {
    const double logits = berth_config_f64_or(builder, "logits_scaling", 1);
    decoder->embedding_scale = berth_config_f64_or(builder, "embedding_multiplier", 1);
    decoder->attention_scale = berth_config_f64_or(builder, "attention_multiplier", 1);
    decoder->residual_scale = berth_config_f64_or(builder, "residual_multiplier", 1);
    decoder->logit_scale = logits > 0 ? 1 / logits : 1;
}

int berth_decoder_lists(berth_builder *builder, const char *key, int64_t layer) {
    uint64_t count = 0;
    (void)builder->host->json_get_count(builder->config, key, &count);
    for (uint64_t i = 0; i < count; ++i) {
        int64_t listed = -1;
        const char *path = berth_build_name(builder, "%s.%llu", key, (unsigned long long)i);
        if (builder->host->json_get_i64(builder->config, path, &listed) == BERTH_OK &&
            listed == layer) {
            return 1;
        }
    }
    return 0;
}

// ---- windows ------------------------------------------------------------------------------------

int64_t berth_decoder_read_window(berth_builder *builder, int64_t usual) {
    const char *key = "sliding_window";
    const int is_none =
        berth_decoder_is_null(builder, key) || (usual == 0 && !is_given(builder, key));
    return is_none ? 0 : berth_config_count_or(builder, key, usual);
}

void berth_decoder_read_windows(berth_builder *builder, berth_decoder *decoder) {
    int64_t first = 28;
    const char *key = "max_window_layers";
    if (!berth_config_bool_or(builder, "use_sliding_window", 0)) {
        return;
    }
    decoder->sliding_window = berth_decoder_read_window(builder, 4096);
    if ((is_given(builder, key) &&
         builder->host->json_get_i64(builder->config, key, &first) != BERTH_OK) ||
        first < 0) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is not a number of layers",
                         key);
    }
    decoder->first_sliding_layer = first;
}

// Where config.json lists no kinds of layers.
static int64_t usual_window(const berth_decoder *decoder, int64_t layer) {
    const int is_full = layer < decoder->first_sliding_layer ||
                        (decoder->end_sliding_layer > 0 && layer >= decoder->end_sliding_layer) ||
                        (decoder->sliding_period > 0 && (layer + 1) % decoder->sliding_period == 0);
    return is_full ? 0 : decoder->sliding_window;
}

int64_t berth_decoder_window(berth_builder *builder, const berth_decoder *decoder, int64_t layer) {
    uint64_t count = 0;
    if (builder->host->json_get_count(builder->config, "layer_types", &count) != BERTH_OK) {
        return usual_window(decoder, layer);
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

const berth_decoder_names berth_decoder_llama_names = {
    .embedding = "model.embed_tokens",
    .layers = "model.layers",
    .final_norm = "model.norm",
    .head = "lm_head",
    .attention_norm = "input_layernorm",
    .attention = "self_attn",
    .mlp_norm = "post_attention_layernorm",
    .mlp = "mlp",
    .qkv = "qkv_proj",
    .q_norm = "q_norm",
    .k_norm = "k_norm",
    .attention_output = "o_proj",
    .up = "gate_up_proj",
    .down = "down_proj",
    .router = "gate",
    .shared_experts = "shared_experts",
};
