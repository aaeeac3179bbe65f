// SPDX-License-Identifier: Apache-2.0
// InternLM2ForCausalLM: Llama under other names; a key head's queries, key and value stand together
// in one tensor.
#include "decoder/decoder.h"

static void build(berth_builder *builder) {
    berth_decoder_names names = berth_decoder_llama_names;
    names.embedding = "model.tok_embeddings";
    names.head = "output";
    names.attention_norm = "attention_norm";
    names.attention = "attention";
    names.qkv = "wqkv";
    names.attention_output = "wo";
    names.mlp_norm = "ffn_norm";
    names.mlp = "feed_forward";
    names.down = "w2";
    berth_decoder internlm2 = {.names = &names, .has_grouped_qkv = 1};
    berth_decoder_read(builder, &internlm2);
    internlm2.has_qkv_bias = berth_config_bool_or(builder, "bias", 0);
    internlm2.has_output_bias = internlm2.has_qkv_bias;
    berth_decoder_build(builder, &internlm2);
}

static const berth_weight_rule *const rules[] = {
    BERTH_DECODER_RULE(".feed_forward.w1.", ".feed_forward.gate_up_proj.", "0"),
    BERTH_DECODER_RULE(".feed_forward.w3.", ".feed_forward.gate_up_proj.", "1"),
    BERTH_DECODER_RULE(".rotary_emb.inv_freq", NULL, NULL),
};

const berth_model berth_model_internlm2 = {
    .size = sizeof(berth_model),
    .architecture = "InternLM2ForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
