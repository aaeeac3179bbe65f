// SPDX-License-Identifier: Apache-2.0
// AWQ (gemm): 4 bits in groups with zero points, in words whose fields are in an order of their
// own. `modules_to_not_convert` names by parts of names.
#include "forms/forms.h"

#define PATH "quantization_config"

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *method = NULL;
    const char *file = NULL;
    const berth_status named =
        host->json_get_str(config, "quantization_config.quant_method", &method);
    const int is_file = host->json_get_str(config, "quantization_file", &file) == BERTH_OK &&
                        (strcmp(file, "quant_config.json") == 0 || berth_form_is_awq(host, config));
    return (named == BERTH_OK && strcmp(method, "awq") == 0) || (named != BERTH_OK && is_file)
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

// Names of AutoAWQ, then those of quant_config.json.
typedef struct fields {
    int64_t bits;
    int64_t group;
    int64_t has_zeros;
    const char *version;
} fields;

static berth_status read_fields(const berth_host *host, const berth_json *config, fields *out) {
    const berth_form_field list[] = {
        {.path = PATH ".w_bit",        .number = &out->bits    },
        {.path = PATH ".bits",         .number = &out->bits    },
        {.path = PATH ".q_group_size", .number = &out->group   },
        {.path = PATH ".group_size",   .number = &out->group   },
        {.path = PATH ".zero_point",   .truth = &out->has_zeros},
        {.path = PATH ".version",      .text = &out->version   },
    };
    return berth_form_read(host, config, list, sizeof list / sizeof list[0]);
}

// Other versions lay words out in other ways.
static berth_status check_fields(const berth_host *host, const fields *of) {
    if (of->bits != 4) {
        return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "awq has 4 bits, this one %lld",
                                 (long long)of->bits);
    }
    return strcmp(of->version, "gemm") == 0 || strcmp(of->version, "GEMM") == 0
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "version '%s' of awq: gemm is there",
                                   of->version);
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t *notes = linear->quant->notes;
    fields of = {.bits = 4, .group = 128, .has_zeros = 1, .version = "gemm"};
    if (!berth_form_takes(host, linear) || read_fields(host, config, &of) != BERTH_OK ||
        check_fields(host, &of) != BERTH_OK) {
        return NULL;
    }
    notes[BERTH_PACKED_WORDS] = BERTH_FORM_WORDS_AWQ;
    notes[BERTH_PACKED_BITS] = of.bits;
    notes[BERTH_PACKED_GROUP] = of.group;
    notes[BERTH_PACKED_HAS_ZEROS] = of.has_zeros;
    return &berth_form_packed;
}

static const char *const files[] = {"quant_config.json", "quantize_config.json"};

const berth_quant_config berth_quant_awq = {
    .size = sizeof(berth_quant_config),
    .name = "awq",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .config_files = files,
    .config_file_count = 2,
};
