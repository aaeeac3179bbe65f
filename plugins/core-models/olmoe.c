// SPDX-License-Identifier: Apache-2.0
// OlmoeForCausalLM: Llama with a mixture of experts in every layer, and one norm over all heads of
// queries and of keys; with clip_qkv what that and the values are is bounded.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder olmoe = {.norm_eps = 1e-5, .qk_norm = BERTH_QK_NORM_ALL};
    berth_decoder_read(builder, &olmoe);
    berth_decoder_read_experts(builder, &olmoe);
    olmoe.qkv_limit = berth_config_f64_or(builder, "clip_qkv", 0);
    olmoe.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    olmoe.has_output_bias = olmoe.has_qkv_bias;
    olmoe.experts.renormalize = berth_config_bool_or(builder, "norm_topk_prob", 0);
    berth_decoder_build(builder, &olmoe);
}

const berth_model berth_model_olmoe = {
    .size = sizeof(berth_model),
    .architecture = "OlmoeForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
