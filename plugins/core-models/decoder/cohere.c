// SPDX-License-Identifier: Apache-2.0
// Input: config.json of a Cohere model. Output: the decoder that it is.
#include "cohere.h"

void berth_cohere_read(berth_builder *builder, berth_decoder_names *names, berth_decoder *cohere,
                       double rope_theta) {
    *names = berth_decoder_llama_names;
    names->mlp_norm = NULL;
    *cohere = (berth_decoder){
        .names = names,
        .norm = BERTH_NORM_MEAN,
        .norm_eps = 1e-5,
        .rope_theta = rope_theta,
        .is_parallel = 1,
        .turns_neighbours = 1,
        .ties_embeddings = 1,
    };
    berth_decoder_read(builder, cohere);
    cohere->has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    cohere->has_output_bias = cohere->has_qkv_bias;
    cohere->logit_scale = berth_config_f64_or(builder, "logit_scale", 0.0625);
}
