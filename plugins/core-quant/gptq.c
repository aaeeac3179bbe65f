// SPDX-License-Identifier: Apache-2.0
// GPTQ: 4 or 8 bits in groups, in words along the inputs; with `desc_act` groups are those of
// `g_idx`. Format "gptq" stores zero points less one, "gptq_v2" as they are. Rules of `dynamic`:
// "-:REGEX" leaves modules alone, "+:REGEX" or "REGEX" changes fields; the first that matches.
#include "forms/forms.h"

#define PATH "quantization_config"

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *method = NULL;
    const char *file = NULL;
    const berth_status named = host->json_get_str(config, PATH ".quant_method", &method);
    const int is_file = host->json_get_str(config, "quantization_file", &file) == BERTH_OK &&
                        strcmp(file, "quantize_config.json") == 0;
    return (named == BERTH_OK && (strcmp(method, "gptq") == 0 || strcmp(method, "gptq_v2") == 0)) ||
                   (named != BERTH_OK && is_file)
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

// The number of the rule of `dynamic` that has the module, from 1; 0: none.
static berth_status answer(const berth_host *host, const berth_linear *linear, const char *name,
                           int64_t *out) {
    const berth_json *rules = NULL;
    const berth_json *rule = NULL;
    const char *key = NULL;
    *out = 0;
    if (host->json_get(linear->quant->config, PATH ".dynamic", &rules) != BERTH_OK) {
        return BERTH_OK;
    }
    for (uint64_t i = 0; host->json_get_entry(rules, i, &key, &rule) == BERTH_OK; ++i) {
        const int has_sign = (key[0] == '-' || key[0] == '+') && key[1] == ':';
        const berth_status status = host->match(host, key + (has_sign ? 2 : 0), name);
        if (status != BERTH_NOT_FOUND) {
            *out = (int64_t)i + 1;
            return status;
        }
    }
    return BERTH_OK;
}

// The whole configuration, then what a rule changes.
static void read_fields(const berth_host *host, const berth_json *from, int64_t *notes,
                        int64_t *desc_act) {
    (void)host->json_get_i64(from, "bits", &notes[BERTH_PACKED_BITS]);
    (void)host->json_get_i64(from, "group_size", &notes[BERTH_PACKED_GROUP]);
    (void)host->json_get_bool(from, "desc_act", desc_act);
}

// Reads the layer's rule; 0 when it says that the layer is not quantized.
static int read_rule(const berth_host *host, const berth_json *config, int64_t number,
                     int64_t *notes, int64_t *desc_act) {
    const berth_json *whole = NULL;
    const berth_json *rules = NULL;
    const berth_json *rule = NULL;
    const char *key = "";
    if (host->json_get(config, PATH, &whole) == BERTH_OK) {
        read_fields(host, whole, notes, desc_act);
    }
    if (number > 0 && host->json_get(config, PATH ".dynamic", &rules) == BERTH_OK &&
        host->json_get_entry(rules, (uint64_t)number - 1, &key, &rule) == BERTH_OK) {
        read_fields(host, rule, notes, desc_act);
    }
    return strncmp(key, "-:", 2) != 0;
}

static int is_v2(const berth_host *host, const berth_json *config) {
    const char *method = "";
    const char *format = "";
    (void)host->json_get_str(config, PATH ".quant_method", &method);
    (void)host->json_get_str(config, PATH ".checkpoint_format", &format);
    return strcmp(format[0] ? format : method, "gptq_v2") == 0;
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t *notes = linear->quant->notes;
    int64_t rule = 0;
    int64_t desc_act = 0;
    int64_t has_head = 0;
    notes[BERTH_PACKED_GROUP] = -1;
    if (berth_quant_agree(host, linear, answer, &rule) != BERTH_OK) {
        return NULL;
    }
    (void)host->json_get_bool(config, PATH ".lm_head", &has_head);
    const int is_head = strcmp(linear->layer_class, "ParallelLMHead") == 0;
    if (!read_rule(host, config, rule, notes, &desc_act) ||
        (is_head ? !has_head : !berth_form_is_body(linear))) {
        return berth_form_none(linear);
    }
    if (notes[BERTH_PACKED_BITS] != 4 && notes[BERTH_PACKED_BITS] != 8) {
        (void)BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                                "gptq with 4 and 8 bits is there, this layer has %lld",
                                (long long)notes[BERTH_PACKED_BITS]);
        return NULL;
    }
    notes[BERTH_PACKED_WORDS] = BERTH_FORM_WORDS_GPTQ;
    notes[BERTH_PACKED_HAS_ZEROS] = 1;
    notes[BERTH_PACKED_ADDEND] = !is_v2(host, config);
    notes[BERTH_PACKED_IS_SORTED] = desc_act && notes[BERTH_PACKED_GROUP] > 0;
    return &berth_form_packed;
}

static const char *const files[] = {"quantize_config.json"};

const berth_quant_config berth_quant_gptq = {
    .size = sizeof(berth_quant_config),
    .name = "gptq",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .config_files = files,
    .config_file_count = 1,
};
