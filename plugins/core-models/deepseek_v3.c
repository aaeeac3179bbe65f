// SPDX-License-Identifier: Apache-2.0
// DeepseekV3ForCausalLM: experts by a sigmoid with a bias that counts for the choice only, out of
// the best groups of experts.
#include "decoder/deepseek.h"

static void build(berth_builder *builder) {
    berth_decoder deepseek = {0};
    berth_deepseek_read(builder, &deepseek);
    deepseek.experts.scoring = "sigmoid";
    deepseek.experts.has_correction = 1;
    deepseek.experts.renormalize = berth_config_bool_or(builder, "norm_topk_prob", 1);
    deepseek.experts.scale = berth_config_f64_or(builder, "routed_scaling_factor", 2.5);
    deepseek.experts.group_count = berth_config_count_or(builder, "n_group", 8);
    deepseek.experts.groups_per_token = berth_config_count_or(builder, "topk_group", 4);
    berth_decoder_build(builder, &deepseek);
}

const berth_model berth_model_deepseek_v3 = {
    .size = sizeof(berth_model),
    .architecture = "DeepseekV3ForCausalLM",
    .build = build,
    .weight_rules = berth_deepseek_rules,
    .weight_rule_count = BERTH_DEEPSEEK_RULES,
};
