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
                        strcmp(file, "quantize_config.json") == 0 &&
                        !berth_form_is_awq(host, config);
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

// What is said of a layer.
typedef struct fields {
    int64_t bits;
    int64_t group;
    int64_t desc_act;
    int64_t has_head; // whether the head is quantized, too
    const char *method;
    const char *format;
} fields;

static berth_status read_fields(const berth_host *host, const berth_json *from, fields *out) {
    const berth_form_field list[] = {
        {.path = "bits",              .number = &out->bits   },
        {.path = "group_size",        .number = &out->group  },
        {.path = "desc_act",          .truth = &out->desc_act},
        {.path = "lm_head",           .truth = &out->has_head},
        {.path = "quant_method",      .text = &out->method   },
        {.path = "checkpoint_format", .text = &out->format   },
    };
    return berth_form_read(host, from, list, sizeof list / sizeof list[0]);
}

// The whole configuration, then what the layer's rule changes; the rule may be that it is not
// quantized.
static berth_status read_rule(const berth_host *host, const berth_json *config, int64_t number,
                              fields *out, int *out_is_left) {
    const berth_json *whole = NULL;
    const berth_json *rules = NULL;
    const berth_json *rule = NULL;
    const char *key = "";
    berth_status status = host->json_get(config, PATH, &whole);
    status = status == BERTH_OK ? read_fields(host, whole, out) : status;
    if (status == BERTH_OK && number > 0 &&
        host->json_get(config, PATH ".dynamic", &rules) == BERTH_OK &&
        host->json_get_entry(rules, (uint64_t)number - 1, &key, &rule) == BERTH_OK) {
        *out_is_left = strncmp(key, "-:", 2) == 0;
        status = *out_is_left ? BERTH_OK : read_fields(host, rule, out);
    }
    return status;
}

static berth_status check_fields(const berth_host *host, const fields *of) {
    if (of->bits != 4 && of->bits != 8) {
        return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                                 "gptq with 4 and 8 bits is there, this layer has %lld",
                                 (long long)of->bits);
    }
    if (of->format[0] != 0 && strcmp(of->format, "gptq") != 0 &&
        strcmp(of->format, "gptq_v2") != 0) {
        return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                                 "checkpoint_format '%s': gptq and gptq_v2 are there", of->format);
    }
    return BERTH_OK;
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t *notes = linear->quant->notes;
    int64_t rule = 0;
    int is_left = 0;
    fields of = {.group = -1, .method = "", .format = ""};
    if (berth_quant_agree(host, linear, answer, &rule) != BERTH_OK ||
        read_rule(host, config, rule, &of, &is_left) != BERTH_OK) {
        return NULL;
    }
    const int is_head = strcmp(linear->layer_class, "ParallelLMHead") == 0;
    if (is_left || (is_head ? !of.has_head : !berth_form_is_body(linear))) {
        return berth_form_none(linear);
    }
    if (check_fields(host, &of) != BERTH_OK) {
        return NULL;
    }
    notes[BERTH_PACKED_WORDS] = BERTH_FORM_WORDS_GPTQ;
    notes[BERTH_PACKED_BITS] = of.bits;
    notes[BERTH_PACKED_GROUP] = of.group;
    notes[BERTH_PACKED_HAS_ZEROS] = 1;
    notes[BERTH_PACKED_ADDEND] = strcmp(of.format[0] ? of.format : of.method, "gptq_v2") != 0;
    notes[BERTH_PACKED_IS_SORTED] = of.desc_act && of.group > 0;
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
