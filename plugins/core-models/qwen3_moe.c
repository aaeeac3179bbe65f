// SPDX-License-Identifier: Apache-2.0
// Qwen3MoeForCausalLM: Qwen3 with a mixture of experts in most layers; all may have a sliding
// window.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder qwen3 = {.qk_norm = BERTH_QK_NORM_HEAD};
    berth_decoder_read(builder, &qwen3);
    berth_decoder_read_experts(builder, &qwen3);
    if (berth_config_bool_or(builder, "use_sliding_window", 0)) {
        qwen3.sliding_window = berth_decoder_read_window(builder, 4096);
    }
    qwen3.has_qkv_bias = berth_config_bool_or(builder, "attention_bias", 0);
    qwen3.has_output_bias = qwen3.has_qkv_bias;
    qwen3.experts.period = berth_config_count_or(builder, "decoder_sparse_step", 1);
    qwen3.experts.renormalize = berth_config_bool_or(builder, "norm_topk_prob", 0);
    berth_decoder_build(builder, &qwen3);
}

const berth_model berth_model_qwen3_moe = {
    .size = sizeof(berth_model),
    .architecture = "Qwen3MoeForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
