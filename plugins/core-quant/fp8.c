// SPDX-License-Identifier: Apache-2.0
// fp8: checkpoints of transformers and DeepSeek. Weights e4m3 with one scale per tensor or per
// block (`weight_block_size`); inputs by `activation_scheme` with a stored scale, or per token, or
// per token and block. Left alone: `modules_to_not_convert`, `ignored_layers`, heads and routers.
#include "forms/forms.h"

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *method = NULL;
    return host->json_get_str(config, "quantization_config.quant_method", &method) == BERTH_OK &&
                   strcmp(method, "fp8") == 0
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

// 1: quantized.
static berth_status answer(const berth_host *host, const berth_linear *linear, const char *name,
                           int64_t *out) {
    static const char *const lists[] = {
        "quantization_config.modules_to_not_convert",
        "quantization_config.ignored_layers",
    };
    *out = 1;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; ++i) {
        const berth_status status =
            berth_quant_listed(host, linear, name, lists[i], BERTH_QUANT_WITHIN);
        if (status == BERTH_OK) {
            *out = 0;
        } else if (status != BERTH_NOT_FOUND) {
            return status;
        }
    }
    return BERTH_OK;
}

static berth_status read_block(const berth_host *host, const berth_json *config, int64_t *notes) {
    int64_t *rows = &notes[BERTH_SCALED_ROWS];
    int64_t *columns = &notes[BERTH_SCALED_COLUMNS];
    if (host->json_get_i64(config, "quantization_config.weight_block_size.0", rows) != BERTH_OK ||
        host->json_get_i64(config, "quantization_config.weight_block_size.1", columns) !=
            BERTH_OK) {
        return BERTH_NOT_FOUND;
    }
    return *rows > 0 && *columns > 0
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                   "quantization_config.weight_block_size is [%lld, %lld]",
                                   (long long)*rows, (long long)*columns);
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t *notes = linear->quant->notes;
    int64_t is_quantized = 0;
    const char *scheme = "dynamic";
    if (berth_quant_agree(host, linear, answer, &is_quantized) != BERTH_OK) {
        return NULL;
    }
    if (!is_quantized || !berth_form_is_body(linear)) {
        return berth_form_none(linear);
    }
    const berth_status block = read_block(host, config, notes);
    if (block != BERTH_OK && block != BERTH_NOT_FOUND) {
        return NULL;
    }
    (void)host->json_get_str(config, "quantization_config.activation_scheme", &scheme);
    const int is_static = strcmp(scheme, "static") == 0;
    notes[BERTH_SCALED_CODE] = BERTH_CODE_E4M3;
    notes[BERTH_SCALED_PART] = block == BERTH_OK ? BERTH_FORM_PER_BLOCK : BERTH_FORM_PER_TENSOR;
    notes[BERTH_SCALED_INPUT] = is_static           ? BERTH_FORM_INPUT_STATIC
                                : block == BERTH_OK ? BERTH_FORM_INPUT_GROUP
                                                    : BERTH_FORM_INPUT_TOKEN;
    notes[BERTH_SCALED_IS_INVERSE] = block == BERTH_OK;
    return &berth_form_scaled;
}

const berth_quant_config berth_quant_fp8 = {
    .size = sizeof(berth_quant_config),
    .name = "fp8",
    .matches = matches,
    .get_quant_method = get_quant_method,
};
