// SPDX-License-Identifier: Apache-2.0
// ModelSlim ("ascend" in vLLM): quant_model_description.json says of every tensor what it is:
// FLOAT, W8A8 (inputs static), W8A8_DYNAMIC (inputs per token), W4A8_DYNAMIC (two rows of 4 bits in
// one).
#include "forms/forms.h"

#define PATH      "quantization_config"
#define FILE_NAME "quant_model_description.json"

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *file = NULL;
    return host->json_get_str(config, "quantization_file", &file) == BERTH_OK &&
                   strcmp(file, FILE_NAME) == 0
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

enum { FLOAT, W8A8, W8A8_DYNAMIC, W4A8_DYNAMIC, TYPES };
static const char *const types[TYPES] = {
    [FLOAT] = "FLOAT",
    [W8A8] = "W8A8",
    [W8A8_DYNAMIC] = "W8A8_DYNAMIC",
    [W4A8_DYNAMIC] = "W4A8_DYNAMIC",
};

// What the description says about the module's weight.
static berth_status answer(const berth_host *host, const berth_linear *linear, const char *name,
                           int64_t *out) {
    const berth_json *all = NULL;
    const berth_json *entry = NULL;
    const char *type = types[FLOAT];
    char tensor[320];
    (void)snprintf(tensor, sizeof tensor, "%s.weight", name);
    if (host->json_get(linear->quant->config, PATH, &all) == BERTH_OK &&
        host->json_get_member(all, tensor, &entry) == BERTH_OK) {
        (void)host->json_get_str(entry, "", &type);
    }
    for (*out = 0; *out < TYPES; ++*out) {
        if (strcmp(type, types[*out]) == 0) {
            return BERTH_OK;
        }
    }
    return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                             "tensor '%s' is %s; FLOAT, W8A8, W8A8_DYNAMIC and W4A8_DYNAMIC are "
                             "there",
                             tensor, type);
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t *notes = linear->quant->notes;
    int64_t type = FLOAT;
    int64_t group = 0;
    if (berth_quant_agree(host, linear, answer, &type) != BERTH_OK) {
        return NULL;
    }
    if (type == FLOAT) {
        return berth_form_none(linear);
    }
    if (type == W4A8_DYNAMIC) {
        (void)host->json_get_i64(config, PATH ".group_size", &group);
        notes[BERTH_NIBBLES_GROUP] = group;
        return &berth_form_nibbles;
    }
    notes[BERTH_SCALED_CODE] = BERTH_CODE_I8;
    notes[BERTH_SCALED_PART] = BERTH_FORM_PER_CHANNEL;
    notes[BERTH_SCALED_INPUT] = type == W8A8 ? BERTH_FORM_INPUT_STATIC : BERTH_FORM_INPUT_TOKEN;
    notes[BERTH_SCALED_ZERO] = type == W8A8 ? BERTH_FORM_QUANT_BIAS : BERTH_FORM_SYMMETRIC;
    notes[BERTH_SCALED_HAS_OFFSETS] = 1;
    return &berth_form_scaled;
}

static const char *const files[] = {FILE_NAME};

const berth_quant_config berth_quant_ascend = {
    .size = sizeof(berth_quant_config),
    .name = "ascend",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .config_files = files,
    .config_file_count = 1,
};
