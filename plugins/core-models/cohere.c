// SPDX-License-Identifier: Apache-2.0
// CohereForCausalLM: every head of queries and keys may have a norm with a weight of its own.
#include "decoder/cohere.h"

static void build(berth_builder *builder) {
    berth_decoder_names names;
    berth_decoder cohere;
    berth_cohere_read(builder, &names, &cohere, 5e5);
    if (berth_config_bool_or(builder, "use_qk_norm", 0)) {
        cohere.qk_norm = BERTH_QK_NORM_OWN_HEAD;
    }
    berth_decoder_build(builder, &cohere);
}

const berth_model berth_model_cohere = {
    .size = sizeof(berth_model),
    .architecture = "CohereForCausalLM",
    .build = build,
    .weight_rules = berth_decoder_rules,
    .weight_rule_count = BERTH_DECODER_RULES,
};
