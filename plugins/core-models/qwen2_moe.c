// SPDX-License-Identifier: Apache-2.0
// Qwen2MoeForCausalLM: Qwen2 with a mixture of experts; beside the chosen ones an expert for every
// token, which counts as much as a gate says.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.shared_experts = "shared_expert";
    berth_decoder qwen2 = {.names = &names};
    berth_decoder_read(builder, &qwen2);
    berth_decoder_read_experts(builder, &qwen2);
    berth_decoder_read_windows(builder, &qwen2);
    if (qwen2.sliding_window > 0) { // of the first layers every other one has it
        qwen2.end_sliding_layer = qwen2.first_sliding_layer;
        qwen2.first_sliding_layer = 0;
        qwen2.sliding_period = 2;
        qwen2.sliding_window = qwen2.end_sliding_layer > 0 ? qwen2.sliding_window : 0;
    }
    qwen2.has_qkv_bias = berth_config_bool_or(builder, "qkv_bias", 1);
    qwen2.experts.period = berth_config_count_or(builder, "decoder_sparse_step", 1);
    qwen2.experts.renormalize = berth_config_bool_or(builder, "norm_topk_prob", 0);
    qwen2.experts.shared_size = berth_config_count(builder, "shared_expert_intermediate_size");
    qwen2.experts.has_shared_gate = 1;
    berth_decoder_build(builder, &qwen2);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_RULE(".shared_expert.gate_proj.", ".shared_expert.experts.w13_", "w1"),
    BERTH_DECODER_RULE(".shared_expert.up_proj.", ".shared_expert.experts.w13_", "w3"),
    BERTH_DECODER_RULE(".shared_expert.down_proj.", ".shared_expert.experts.w2_", NULL),
    BERTH_DECODER_QKV_RULES,
    BERTH_DECODER_EXPERT_RULES,
    BERTH_DECODER_GATE_RULES,
};

const berth_model berth_model_qwen2_moe = {
    .size = sizeof(berth_model),
    .architecture = "Qwen2MoeForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
