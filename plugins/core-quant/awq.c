// SPDX-License-Identifier: Apache-2.0
// AWQ (gemm): 4 bits in groups with zero points, in words whose fields are in an order of their
// own. `modules_to_not_convert` names by parts of names.
#include "forms/forms.h"

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *method = NULL;
    const char *file = NULL;
    const berth_status named =
        host->json_get_str(config, "quantization_config.quant_method", &method);
    const int is_file = host->json_get_str(config, "quantization_file", &file) == BERTH_OK &&
                        strcmp(file, "quant_config.json") == 0;
    return (named == BERTH_OK && strcmp(method, "awq") == 0) || (named != BERTH_OK && is_file)
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

// 1: quantized.
static berth_status answer(const berth_host *host, const berth_linear *linear, const char *name,
                           int64_t *out) {
    const berth_status status = berth_quant_listed(
        host, linear, name, "quantization_config.modules_to_not_convert", BERTH_QUANT_WITHIN);
    *out = status == BERTH_NOT_FOUND;
    return status == BERTH_NOT_FOUND ? BERTH_OK : status;
}

static int64_t either(const berth_host *host, const berth_json *config, const char *one,
                      const char *other, int64_t fallback) {
    (void)host->json_get_i64(config, other, &fallback);
    (void)host->json_get_i64(config, one, &fallback);
    return fallback;
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t *notes = linear->quant->notes;
    int64_t is_quantized = 0;
    int64_t has_zeros = 1;
    if (berth_quant_agree(host, linear, answer, &is_quantized) != BERTH_OK) {
        return NULL;
    }
    if (!is_quantized || !berth_form_is_body(linear)) {
        return berth_form_none(linear);
    }
    const int64_t bits =
        either(host, config, "quantization_config.bits", "quantization_config.w_bit", 4);
    if (bits != 4) {
        (void)BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "awq has 4 bits, this one %lld",
                                (long long)bits);
        return NULL;
    }
    (void)host->json_get_bool(config, "quantization_config.zero_point", &has_zeros);
    notes[BERTH_PACKED_WORDS] = BERTH_FORM_WORDS_AWQ;
    notes[BERTH_PACKED_BITS] = bits;
    notes[BERTH_PACKED_GROUP] = either(host, config, "quantization_config.group_size",
                                       "quantization_config.q_group_size", 128);
    notes[BERTH_PACKED_HAS_ZEROS] = has_zeros;
    return &berth_form_packed;
}

static const char *const files[] = {"quant_config.json"};

const berth_quant_config berth_quant_awq = {
    .size = sizeof(berth_quant_config),
    .name = "awq",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .config_files = files,
    .config_file_count = 1,
};
