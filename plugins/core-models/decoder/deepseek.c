// SPDX-License-Identifier: Apache-2.0
// Input: config.json of a DeepSeek model. Output: the decoder that it is.
#include "deepseek.h"

#include <math.h>

// Over a stretched context attention is sharpened a second time, beside the rope's own factor.
static double sharpness(berth_builder *builder) {
    const double factor = berth_config_f64_or(builder, "rope_parameters.factor", 1);
    const double all = berth_config_f64_or(builder, "rope_parameters.mscale_all_dim", 0);
    const double growth = factor > 1 && all > 0 ? 0.1 * all * log(factor) + 1 : 1;
    return growth * growth;
}

static void read_attention(berth_builder *builder, berth_decoder *deepseek) {
    berth_decoder_latent *latent = &deepseek->latent;
    int64_t rank = 0;
    *latent = (berth_decoder_latent){
        .kv_lora_rank = berth_config_count(builder, "kv_lora_rank"),
        .nope_size = berth_config_count(builder, "qk_nope_head_dim"),
        .rope_size = berth_config_count(builder, "qk_rope_head_dim"),
        .value_size = berth_config_count(builder, "v_head_dim"),
    };
    if (builder->host->json_get_i64(builder->config, "q_lora_rank", &rank) != BERTH_NOT_FOUND) {
        latent->q_lora_rank = berth_config_count(builder, "q_lora_rank");
    }
    latent->has_bias = berth_config_bool_or(builder, "attention_bias", 0);
    deepseek->head_size = latent->rope_size; // of what turns
    berth_decoder_read_rope(builder, deepseek, "rope_parameters", &deepseek->rope);
    deepseek->attention_scale =
        sharpness(builder) / sqrt((double)(latent->nope_size + latent->rope_size));
}

static void read_experts(berth_builder *builder, berth_decoder *deepseek) {
    berth_decoder_experts *experts = &deepseek->experts;
    int64_t number = 0;
    const berth_host *host = builder->host;
    if (host->json_get_i64(builder->config, "n_routed_experts", &number) == BERTH_NOT_FOUND) {
        return; // a dense model
    }
    berth_decoder_read_experts(builder, deepseek);
    if (host->json_get_i64(builder->config, "n_shared_experts", &number) != BERTH_NOT_FOUND) {
        experts->shared_size = berth_config_count(builder, "n_shared_experts") * experts->size;
    }
    if (host->json_get_i64(builder->config, "first_k_dense_replace", &number) == BERTH_OK) {
        experts->first_layer = number;
    }
    experts->scale = berth_config_f64_or(builder, "routed_scaling_factor", 1);
    experts->routes_in_f32 = 1;
}

// Layers behind the last one, which guess further tokens.
static void ignore_predictors(berth_builder *builder, const berth_decoder *deepseek) {
    int64_t count = 0;
    (void)builder->host->json_get_i64(builder->config, "num_nextn_predict_layers", &count);
    for (int64_t i = 0; i < count && i < BERTH_CONFIG_LAYER_MAX; ++i) {
        builder->ignore(builder, berth_build_name(builder, "layers.%lld.",
                                                  (long long)deepseek->layer_count + (long long)i));
    }
}

void berth_deepseek_read(berth_builder *builder, berth_decoder *deepseek) {
    deepseek->has_no_rope = 1; // yet
    deepseek->turns_neighbours = berth_config_bool_or(builder, "rope_interleave", 1);
    berth_decoder_read(builder, deepseek);
    deepseek->has_mlp_bias = berth_config_bool_or(builder, "mlp_bias", 0);
    read_attention(builder, deepseek);
    read_experts(builder, deepseek);
    ignore_predictors(builder, deepseek);
}

#define LATENT(from_text, shard_id)                                                                \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (from_text), .to = ".fused_qkv_a_proj.",        \
        .shard = (shard_id), .when = "q_lora_rank",                                                \
    }

const berth_weight_rule *const berth_deepseek_rules[BERTH_DEEPSEEK_RULES] = {
    LATENT(".q_a_proj.", "0"),
    LATENT(".kv_a_proj_with_mqa.", "1"),
    BERTH_DECODER_EXPERT_RULES,
    BERTH_DECODER_GATE_RULES,
    BERTH_DECODER_RULE(".rotary_emb.inv_freq", NULL, NULL),
    BERTH_DECODER_RULE(".rotary_emb.cos_cached", NULL, NULL),
};
