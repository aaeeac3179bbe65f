// SPDX-License-Identifier: Apache-2.0
// compressed-tensors: groups of modules, each with what its weights and inputs are. A module is
// ignored, or of the first group that targets it, or not quantized.
#include "forms/forms.h"

#define PATH "quantization_config"

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *method = NULL;
    return host->json_get_str(config, PATH ".quant_method", &method) == BERTH_OK &&
                   strcmp(method, "compressed-tensors") == 0
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

// ---- which group --------------------------------------------------------------------------------

static berth_status is_target(const berth_host *host, const berth_linear *linear, const char *name,
                              const berth_json *group) {
    const berth_json *targets = NULL;
    const berth_json *target = NULL;
    const char *key = NULL;
    const char *text = NULL;
    if (host->json_get(group, "targets", &targets) != BERTH_OK) {
        return BERTH_NOT_FOUND;
    }
    for (uint64_t i = 0; host->json_get_entry(targets, i, &key, &target) == BERTH_OK; ++i) {
        if (host->json_get_str(target, "", &text) == BERTH_OK) {
            const berth_status status =
                berth_quant_names(host, linear, name, text, BERTH_QUANT_EXACT);
            if (status != BERTH_NOT_FOUND) {
                return status;
            }
        }
    }
    return BERTH_NOT_FOUND;
}

// The number of the module's group, from 1; 0: not quantized.
static berth_status answer(const berth_host *host, const berth_linear *linear, const char *name,
                           int64_t *out) {
    const berth_json *groups = NULL;
    const berth_json *group = NULL;
    const char *key = NULL;
    *out = 0;
    const berth_status ignored =
        berth_quant_listed(host, linear, name, PATH ".ignore", BERTH_QUANT_EXACT);
    if (ignored != BERTH_NOT_FOUND ||
        host->json_get(linear->quant->config, PATH ".config_groups", &groups) != BERTH_OK) {
        return ignored == BERTH_NOT_FOUND ? BERTH_OK : ignored;
    }
    for (uint64_t i = 0; host->json_get_entry(groups, i, &key, &group) == BERTH_OK; ++i) {
        const berth_status status = is_target(host, linear, name, group);
        if (status != BERTH_NOT_FOUND) {
            *out = (int64_t)i + 1;
            return status;
        }
    }
    return BERTH_OK;
}

// ---- what it says -------------------------------------------------------------------------------

// Of weights or of inputs.
typedef struct arguments {
    berth_status status; // of reading them
    int is_there;
    int64_t bits;
    int is_float;
    int64_t is_symmetric;
    int64_t is_dynamic;
    const char *strategy;
    int is_sorted; // by groups that the file gives
    int64_t group;
    int64_t block[2];
} arguments;

// Where the configuration leaves it to the group's size.
static const char *strategy_of(int64_t group) {
    return group > 0 ? "group" : group < 0 ? "channel" : "tensor";
}

// `actorder` is a name, or true for the first of them; with the others weights are in order.
static int is_sorted(const berth_host *host, const berth_json *from) {
    int64_t is_true = 0;
    const char *name = "";
    (void)host->json_get_bool(from, "actorder", &is_true);
    (void)host->json_get_str(from, "actorder", &name);
    return is_true || strcmp(name, "group") == 0 || strcmp(name, "dynamic") == 0;
}

static arguments read_arguments(const berth_host *host, const berth_json *group,
                                const char *which) {
    const berth_json *from = NULL;
    const char *type = "int";
    arguments out = {.is_symmetric = 1, .strategy = "none"};
    if (host->json_get(group, which, &from) != BERTH_OK) {
        return out;
    }
    const berth_form_field list[] = {
        {.path = "num_bits",          .number = &out.bits       },
        {.path = "type",              .text = &type             },
        {.path = "symmetric",         .truth = &out.is_symmetric},
        {.path = "strategy",          .text = &out.strategy     },
        {.path = "group_size",        .number = &out.group      },
        {.path = "block_structure.0", .number = &out.block[0]   },
        {.path = "block_structure.1", .number = &out.block[1]   },
    };
    out.is_there = 1;
    out.strategy = NULL;
    (void)host->json_get_bool(from, "dynamic", &out.is_dynamic); // which may be "local", too
    out.is_sorted = is_sorted(host, from);
    out.status = berth_form_read(host, from, list, sizeof list / sizeof list[0]);
    out.is_float = strcmp(type, "float") == 0;
    out.strategy = out.strategy ? out.strategy : strategy_of(out.group);
    return out;
}

static int is_of(const arguments *of, const char *strategy) {
    return strcmp(of->strategy, strategy) == 0;
}

static const berth_quant_method *refuse(const berth_host *host, const char *format,
                                        const arguments *weights, const arguments *inputs) {
    (void)BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                            "no method for format '%s': weights of %lld bits (%s, %s), inputs of "
                            "%lld (%s)",
                            format, (long long)weights->bits, weights->is_float ? "float" : "int",
                            weights->strategy, (long long)inputs->bits,
                            inputs->is_there ? inputs->strategy : "not quantized");
    return NULL;
}

static const berth_quant_method *packed(const berth_host *host, const arguments *weights,
                                        const arguments *inputs, int64_t *notes) {
    if ((weights->bits != 4 && weights->bits != 8) || weights->is_float || inputs->is_there ||
        !(is_of(weights, "group") || is_of(weights, "channel"))) {
        return refuse(host, "pack-quantized", weights, inputs);
    }
    notes[BERTH_PACKED_WORDS] = BERTH_FORM_WORDS_CT;
    notes[BERTH_PACKED_BITS] = weights->bits;
    notes[BERTH_PACKED_GROUP] = is_of(weights, "group") ? weights->group : -1;
    notes[BERTH_PACKED_HAS_ZEROS] = !weights->is_symmetric;
    notes[BERTH_PACKED_IS_SORTED] = weights->is_sorted;
    return &berth_form_packed;
}

static int is_nvfp4(const arguments *of) {
    return of->bits == 4 && of->is_float && of->is_symmetric && of->group == 16;
}

static berth_form_input input_of(const arguments *inputs) {
    return !inputs->is_there        ? BERTH_FORM_INPUT_FLOAT
           : !inputs->is_dynamic    ? BERTH_FORM_INPUT_STATIC
           : is_of(inputs, "group") ? BERTH_FORM_INPUT_GROUP
                                    : BERTH_FORM_INPUT_TOKEN;
}

static const berth_quant_method *scaled(const berth_host *host, const char *format,
                                        const arguments *weights, const arguments *inputs,
                                        int64_t *notes) {
    const berth_form_input input = input_of(inputs);
    const int is_block = is_of(weights, "block") && weights->block[0] > 0 && weights->block[1] > 0;
    const int is_same_kind =
        !inputs->is_there || (inputs->bits == 8 && inputs->is_float == weights->is_float &&
                              (inputs->is_symmetric || input == BERTH_FORM_INPUT_STATIC));
    if (weights->bits != 8 || !weights->is_symmetric || !is_same_kind ||
        !(is_block || is_of(weights, "tensor") || is_of(weights, "channel")) ||
        (input == BERTH_FORM_INPUT_GROUP && (!is_block || inputs->group != weights->block[1]))) {
        return refuse(host, format, weights, inputs);
    }
    notes[BERTH_SCALED_CODE] = weights->is_float ? BERTH_CODE_E4M3 : BERTH_CODE_I8;
    notes[BERTH_SCALED_PART] = is_block                   ? BERTH_FORM_PER_BLOCK
                               : is_of(weights, "tensor") ? BERTH_FORM_PER_TENSOR
                                                          : BERTH_FORM_PER_CHANNEL;
    notes[BERTH_SCALED_INPUT] = input;
    notes[BERTH_SCALED_ZERO] = input == BERTH_FORM_INPUT_STATIC && !inputs->is_symmetric
                                   ? BERTH_FORM_ZERO_POINT
                                   : BERTH_FORM_SYMMETRIC;
    notes[BERTH_SCALED_ROWS] = weights->block[0];
    notes[BERTH_SCALED_COLUMNS] = weights->block[1];
    return &berth_form_scaled;
}

static berth_status check_format(const berth_host *host, const char *format) {
    static const char *const known[] = {"float-quantized", "int-quantized", "naive-quantized",
                                        "pack-quantized", "nvfp4-pack-quantized"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
        if (strcmp(format, known[i]) == 0) {
            return BERTH_OK;
        }
    }
    return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                             "format '%s': float-quantized, int-quantized, naive-quantized, "
                             "pack-quantized and nvfp4-pack-quantized are there",
                             format);
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    const berth_json *groups = NULL;
    const berth_json *group = NULL;
    const char *key = NULL;
    const char *format = "";
    int64_t number = 0;
    if (berth_quant_agree(host, linear, answer, &number) != BERTH_OK) {
        return NULL;
    }
    if (number == 0 || host->json_get(config, PATH ".config_groups", &groups) != BERTH_OK ||
        host->json_get_entry(groups, (uint64_t)number - 1, &key, &group) != BERTH_OK) {
        return berth_form_none(linear);
    }
    (void)host->json_get_str(config, PATH ".format", &format);
    (void)host->json_get_str(group, "format", &format);
    const arguments weights = read_arguments(host, group, "weights");
    if (weights.status != BERTH_OK || check_format(host, format) != BERTH_OK) {
        return NULL;
    }
    const arguments inputs = read_arguments(host, group, "input_activations");
    if (inputs.status != BERTH_OK) {
        return NULL;
    }
    int64_t *notes = linear->quant->notes;
    if (strcmp(format, "nvfp4-pack-quantized") == 0) {
        notes[BERTH_NVFP4_IS_WEIGHT_ONLY] = !inputs.is_there;
        return is_nvfp4(&weights) && (!inputs.is_there || is_nvfp4(&inputs))
                   ? &berth_form_nvfp4
                   : refuse(host, format, &weights, &inputs);
    }
    return strcmp(format, "pack-quantized") == 0 ? packed(host, &weights, &inputs, notes)
                                                 : scaled(host, format, &weights, &inputs, notes);
}

// With a `kv_cache_scheme` caches hold codes whether or not the user asks for them.
static const berth_kv_cache_method *get_kv_cache_method(const berth_host *host,
                                                        berth_kv_cache_layer *layer) {
    const berth_json *whole = NULL;
    if (host->json_get(layer->config, PATH, &whole) != BERTH_OK) {
        return berth_form_kv_wanted(host, layer);
    }
    const arguments of = read_arguments(host, whole, "kv_cache_scheme");
    if (!of.is_there) {
        return berth_form_kv_wanted(host, layer);
    }
    if (of.bits == 8 && of.is_float && of.is_symmetric && !of.is_dynamic && is_of(&of, "tensor")) {
        return &berth_form_kv_codes;
    }
    (void)BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED,
                            "kv_cache_scheme: 8 bits (float, tensor), static and symmetric, are "
                            "there, this is of %lld bits (%s, %s), %s and %s",
                            (long long)of.bits, of.is_float ? "float" : "int", of.strategy,
                            of.is_dynamic ? "dynamic" : "static",
                            of.is_symmetric ? "symmetric" : "asymmetric");
    return NULL;
}

const berth_quant_config berth_quant_compressed_tensors = {
    .size = sizeof(berth_quant_config),
    .name = "compressed-tensors",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .get_kv_cache_method = get_kv_cache_method,
};
