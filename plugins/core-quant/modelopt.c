// SPDX-License-Identifier: Apache-2.0
// ModelOpt: `quant_algo` FP8, e4m3 with one scale a tensor and static inputs, or NVFP4, whose
// global scales are multipliers here. Its configuration is in config.json or in a file of its own,
// hf_quant_config.json, one level deeper. Left alone: `exclude_modules`, `ignore`, by whole names
// in which "*" stands for anything or by those of modules around them, heads and routers.
#include "forms/forms.h"

#define PATH      "quantization_config"
#define FILE_NAME "hf_quant_config.json"

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *method = NULL;
    const char *file = NULL;
    const berth_status named = host->json_get_str(config, PATH ".quant_method", &method);
    const int is_file = host->json_get_str(config, "quantization_file", &file) == BERTH_OK &&
                        strcmp(file, FILE_NAME) == 0;
    // "modelopt_fp4" and the like name the algorithm, too, which `quant_algo` does anyway.
    return (named == BERTH_OK && strncmp(method, "modelopt", strlen("modelopt")) == 0) ||
                   (named != BERTH_OK && is_file)
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

// ---- which modules ------------------------------------------------------------------------------

// Only the last star is ever tried again: what the stars before it took first leaves the most for
// the rest, so the time is at most the product of the lengths, however many stars there are.
static int fits(const char *name, const char *pattern) {
    const char *after_star = NULL;
    const char *rest = NULL; // of the name, behind what the star has taken
    while (*pattern != 0 || (*name != 0 && *name != '.')) {
        if (*pattern == '*') {
            after_star = ++pattern;
            rest = name;
        } else if (*name != 0 && *name == *pattern) {
            ++name;
            ++pattern;
        } else if (after_star != NULL && *rest != 0) {
            name = ++rest;
            pattern = after_star;
        } else {
            return 0;
        }
    }
    return 1;
}

// 1: no list names the module.
static berth_status answer(const berth_host *host, const berth_linear *linear, const char *name,
                           int64_t *out) {
    static const char *const lists[] = {
        PATH ".ignore",
        PATH ".exclude_modules",
        PATH ".quantization.exclude_modules",
    };
    *out = 1;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; ++i) {
        const berth_json *list = NULL;
        const berth_json *entry = NULL;
        const char *key = NULL;
        const char *pattern = NULL;
        if (host->json_get(linear->quant->config, lists[i], &list) != BERTH_OK) {
            continue;
        }
        for (uint64_t k = 0; host->json_get_entry(list, k, &key, &entry) == BERTH_OK; ++k) {
            const berth_status status = host->json_get_str(entry, "", &pattern);
            *out = *out && (status != BERTH_OK || !fits(name, pattern));
        }
    }
    return BERTH_OK;
}

// ---- what they are ------------------------------------------------------------------------------

typedef struct fields {
    const char *algorithm;
    const char *of_caches;
    int64_t group;
} fields;

static berth_status read_fields(const berth_host *host, const berth_json *config, fields *out) {
    const berth_form_field list[] = {
        {.path = PATH ".quant_algo",                       .text = &out->algorithm},
        {.path = PATH ".quantization.quant_algo",          .text = &out->algorithm},
        {.path = PATH ".kv_cache_quant_algo",              .text = &out->of_caches},
        {.path = PATH ".quantization.kv_cache_quant_algo", .text = &out->of_caches},
        {.path = PATH ".group_size",                       .number = &out->group  },
        {.path = PATH ".quantization.group_size",          .number = &out->group  },
    };
    return berth_form_read(host, config, list, sizeof list / sizeof list[0]);
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t *notes = linear->quant->notes;
    fields of = {.algorithm = "", .of_caches = "", .group = 16};
    int64_t is_quantized = 0;
    if (berth_quant_agree(host, linear, answer, &is_quantized) != BERTH_OK ||
        read_fields(host, config, &of) != BERTH_OK) {
        return NULL;
    }
    if (!is_quantized || !berth_form_is_body(linear)) {
        return berth_form_none(linear);
    }
    if (strcmp(of.algorithm, "FP8") == 0) {
        notes[BERTH_SCALED_CODE] = BERTH_CODE_E4M3;
        notes[BERTH_SCALED_PART] = BERTH_FORM_PER_TENSOR;
        notes[BERTH_SCALED_INPUT] = BERTH_FORM_INPUT_STATIC;
        return &berth_form_scaled;
    }
    if (strcmp(of.algorithm, "NVFP4") == 0 && of.group == 16) {
        notes[BERTH_NVFP4_HAS_MULTIPLIERS] = 1;
        return &berth_form_nvfp4;
    }
    (void)BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                            "quant_algo '%s' in groups of %lld: FP8, and NVFP4 in groups of 16, "
                            "are there",
                            of.algorithm, (long long)of.group);
    return NULL;
}

// With an algorithm for caches they hold codes whether or not the user asks for them.
static const berth_kv_cache_method *get_kv_cache_method(const berth_host *host,
                                                        berth_kv_cache_layer *layer) {
    fields of = {.algorithm = "", .of_caches = ""};
    if (read_fields(host, layer->config, &of) != BERTH_OK) {
        return NULL;
    }
    if (strcmp(of.of_caches, "FP8") == 0) {
        return &berth_form_kv_codes;
    }
    if (of.of_caches[0] != 0) {
        (void)BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "kv_cache_quant_algo '%s': FP8 is there",
                                of.of_caches);
        return NULL;
    }
    return berth_form_kv_wanted(host, layer);
}

static const char *const files[] = {FILE_NAME};

const berth_quant_config berth_quant_modelopt = {
    .size = sizeof(berth_quant_config),
    .name = "modelopt",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .config_files = files,
    .config_file_count = 1,
    .get_kv_cache_method = get_kv_cache_method,
};
