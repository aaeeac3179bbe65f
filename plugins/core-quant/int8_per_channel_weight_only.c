// SPDX-License-Identifier: Apache-2.0
// int8_per_channel_weight_only, at load: weights i8 with a scale for every output, inputs floats.
#include "forms/forms.h"

static uint64_t override_quantization_method(const berth_host *host, const berth_json *config,
                                             const char *wanted) {
    return berth_form_online_takes(host, config, wanted, "int8_per_channel_weight_only");
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    (void)host, (void)config;
    return berth_form_online(linear, (berth_form_rule){
                                         .code = BERTH_CODE_I8,
                                         .part = BERTH_FORM_PER_CHANNEL,
                                         .input = BERTH_FORM_INPUT_FLOAT,
                                     });
}

const berth_quant_config berth_quant_int8_per_channel_weight_only = {
    .size = sizeof(berth_quant_config),
    .name = "int8_per_channel_weight_only",
    .matches = berth_form_online_matches,
    .get_quant_method = get_quant_method,
    .override_quantization_method = override_quantization_method,
};
