// SPDX-License-Identifier: Apache-2.0
// fp8_per_tensor, at load: weights e4m3 with one scale for a layer's matrix, inputs e4m3 per token.
#include "forms/forms.h"

static uint64_t override_quantization_method(const berth_host *host, const berth_json *config,
                                             const char *wanted) {
    return berth_form_online_takes(host, config, wanted, "fp8_per_tensor");
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    (void)host, (void)config;
    return berth_form_online(linear, (berth_form_rule){
                                         .code = BERTH_CODE_E4M3,
                                         .part = BERTH_FORM_PER_TENSOR,
                                         .input = BERTH_FORM_INPUT_TOKEN,
                                     });
}

const berth_quant_config berth_quant_fp8_per_tensor = {
    .size = sizeof(berth_quant_config),
    .name = "fp8_per_tensor",
    .matches = berth_form_online_matches,
    .get_quant_method = get_quant_method,
    .override_quantization_method = override_quantization_method,
};
