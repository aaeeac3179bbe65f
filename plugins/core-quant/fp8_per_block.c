// SPDX-License-Identifier: Apache-2.0
// fp8_per_block, at load: weights e4m3 in blocks of 128 by 128, inputs e4m3 per token and 128 of
// them.
#include "forms/forms.h"

static uint64_t override_quantization_method(const berth_host *host, const berth_json *config,
                                             const char *wanted) {
    return berth_form_online_takes(host, config, wanted, "fp8_per_block");
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    (void)host, (void)config;
    const berth_form_rule rule = {
        .code = BERTH_CODE_E4M3,
        .part = BERTH_FORM_PER_BLOCK,
        .input = BERTH_FORM_INPUT_GROUP,
        .block = 128,
    };
    return berth_form_online(linear, rule);
}

const berth_quant_config berth_quant_fp8_per_block = {
    .size = sizeof(berth_quant_config),
    .name = "fp8_per_block",
    .matches = berth_form_online_matches,
    .get_quant_method = get_quant_method,
    .override_quantization_method = override_quantization_method,
};
