// SPDX-License-Identifier: Apache-2.0
// DeepseekV2ForCausalLM: experts by softmax, out of the best groups of experts where config.json
// says so; their weights stay as they are.
#include "decoder/deepseek.h"

#include <string.h>

static void build(berth_builder *builder) {
    const char *method = berth_config_str_or(builder, "topk_method", "greedy");
    berth_decoder deepseek = {0};
    berth_deepseek_read(builder, &deepseek);
    if (strcmp(method, "group_limited_greedy") == 0) {
        deepseek.experts.group_count = berth_config_count(builder, "n_group");
        deepseek.experts.groups_per_token = berth_config_count(builder, "topk_group");
    } else if (strcmp(method, "greedy") != 0) {
        berth_build_fail(builder, BERTH_UNSUPPORTED,
                         "config.json: topk_method '%s'; this architecture knows 'greedy' and "
                         "'group_limited_greedy'",
                         method);
    }
    berth_decoder_build(builder, &deepseek);
}

const berth_model berth_model_deepseek_v2 = {
    .size = sizeof(berth_model),
    .architecture = "DeepseekV2ForCausalLM",
    .build = build,
    .weight_rules = berth_deepseek_rules,
    .weight_rule_count = BERTH_DEEPSEEK_RULES,
};
