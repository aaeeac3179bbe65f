// SPDX-License-Identifier: Apache-2.0
// fp8: checkpoints of transformers and DeepSeek. Weights e4m3 with one scale per tensor or per
// block (`weight_block_size`); inputs by `activation_scheme` with a stored scale, or per token, or
// per token and block. Left alone: `modules_to_not_convert`, `ignored_layers`, heads and routers.
#include "forms/forms.h"

#define PATH "quantization_config"

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *method = NULL;
    return host->json_get_str(config, "quantization_config.quant_method", &method) == BERTH_OK &&
                   strcmp(method, "fp8") == 0
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

typedef struct fields {
    int64_t rows; // of a block; 0: one scale per tensor
    int64_t columns;
    const char *scheme;
    const char *format;
} fields;

static berth_status read_fields(const berth_host *host, const berth_json *config, fields *out) {
    const berth_form_field list[] = {
        {.path = PATH ".activation_scheme",   .text = &out->scheme   },
        {.path = PATH ".fmt",                 .text = &out->format   },
        {.path = PATH ".weight_block_size.0", .number = &out->rows   },
        {.path = PATH ".weight_block_size.1", .number = &out->columns},
    };
    uint64_t sizes = 0;
    const berth_status block = host->json_get_count(config, PATH ".weight_block_size", &sizes);
    if (block != BERTH_OK && block != BERTH_NOT_FOUND) {
        return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT, "'" PATH ".weight_block_size' is no list");
    }
    const berth_status status = berth_form_read(host, config, list, sizeof list / sizeof list[0]);
    if (status == BERTH_OK && block == BERTH_OK &&
        (sizes != 2 || out->rows < 1 || out->columns < 1)) {
        return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                 PATH ".weight_block_size has %lld sizes, [%lld, %lld]; two that "
                                      "are greater than zero are needed",
                                 (long long)sizes, (long long)out->rows, (long long)out->columns);
    }
    return status;
}

static berth_status check_fields(const berth_host *host, const fields *of) {
    if (strcmp(of->format, "e4m3") != 0) {
        return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "fmt '%s': e4m3 is there", of->format);
    }
    return strcmp(of->scheme, "static") == 0 || strcmp(of->scheme, "dynamic") == 0
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                                   "activation_scheme '%s': static and dynamic are there",
                                   of->scheme);
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t *notes = linear->quant->notes;
    fields of = {.scheme = "dynamic", .format = "e4m3"};
    if (!berth_form_takes(host, linear) || read_fields(host, config, &of) != BERTH_OK ||
        check_fields(host, &of) != BERTH_OK) {
        return NULL;
    }
    const int is_block = of.rows > 0;
    notes[BERTH_SCALED_CODE] = BERTH_CODE_E4M3;
    notes[BERTH_SCALED_PART] = is_block ? BERTH_FORM_PER_BLOCK : BERTH_FORM_PER_TENSOR;
    notes[BERTH_SCALED_INPUT] = strcmp(of.scheme, "static") == 0 ? BERTH_FORM_INPUT_STATIC
                                : is_block                       ? BERTH_FORM_INPUT_GROUP
                                                                 : BERTH_FORM_INPUT_TOKEN;
    notes[BERTH_SCALED_ROWS] = of.rows;
    notes[BERTH_SCALED_COLUMNS] = of.columns;
    notes[BERTH_SCALED_IS_INVERSE] = is_block;
    return &berth_form_scaled;
}

const berth_quant_config berth_quant_fp8 = {
    .size = sizeof(berth_quant_config),
    .name = "fp8",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .get_kv_cache_method = berth_form_kv_wanted,
};
