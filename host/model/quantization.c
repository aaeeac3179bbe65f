// SPDX-License-Identifier: Apache-2.0
// Input: the registered quantization configs, a checkpoint, a linear layer. Output: the scheme of
// the checkpoint, and the layer's nodes. The only place that calls quantization configs and
// methods; "unquantized" is one of them and gets no favour.
#include <string.h>

#include "base/text.h"
#include "model/building.h"

#define TEXT_BYTES 1024

static berth_status ask(const berth_registry *registry, const berth_quant_entry *entry,
                        const berth_json *config, bool *out_is_match) {
    berth_plugin_enter(entry->owner, "matches");
    const berth_status status = entry->config.matches(berth_registry_host(registry), config);
    *out_is_match = status == BERTH_OK;
    const berth_status left = berth_plugin_leave(status);
    return left == BERTH_NOT_FOUND ? BERTH_OK : left;
}

static berth_status nobody(const berth_registry *registry, const berth_checkpoint *checkpoint) {
    berth_str method = BERTH_STR("of a kind that its config.json does not name");
    const berth_json *config = berth_checkpoint_config(checkpoint);
    const berth_json *name = berth_json_find(config, "quantization_config.quant_method");
    if (name != NULL && berth_json_kind_of(name) == BERTH_JSON_STRING) {
        BERTH_TRY(berth_json_get_str(name, "", &method));
    }
    berth_text known;
    berth_text_init(&known, TEXT_BYTES);
    for (size_t i = 0; i < berth_registry_quant_count(registry); ++i) {
        berth_text_add_format(&known, "%s%s", i == 0 ? "" : ", ",
                              berth_registry_quant_at(registry, i)->config.name);
    }
    const berth_str list = berth_text_str(&known);
    const berth_status status = BERTH_FAIL(
        UNSUPPORTED,
        "%s: the checkpoint's quantization '" BERTH_STR_FMT
        "' is registered by no plugin; registered: " BERTH_STR_FMT,
        berth_checkpoint_directory(checkpoint), BERTH_STR_ARG(method), BERTH_STR_ARG(list));
    berth_text_deinit(&known);
    return status;
}

berth_status berth_quantization_choose(const berth_registry *registry,
                                       const berth_checkpoint *checkpoint, const char *wanted,
                                       const berth_quant_entry **out_entry) {
    const char *directory = berth_checkpoint_directory(checkpoint);
    const berth_quant_entry *found = NULL;
    for (size_t i = 0; i < berth_registry_quant_count(registry); ++i) {
        const berth_quant_entry *entry = berth_registry_quant_at(registry, i);
        bool is_match = false;
        BERTH_TRY_NOTE(ask(registry, entry, berth_checkpoint_config(checkpoint), &is_match),
                       "asking whether %s is of scheme '%s'", directory, entry->config.name);
        if (is_match && found != NULL) {
            return BERTH_FAIL(UNSUPPORTED,
                              "%s: both '%s' of plugin %s and '%s' of plugin %s claim the "
                              "checkpoint's quantization; load one of them",
                              directory, found->config.name, found->owner->id, entry->config.name,
                              entry->owner->id);
        }
        found = is_match ? entry : found;
    }
    if (found == NULL) {
        return nobody(registry, checkpoint);
    }
    if (wanted != NULL && strcmp(wanted, found->config.name) != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "%s: the quantization asked for is '%s', the checkpoint's is '%s'",
                          directory, wanted, found->config.name);
    }
    *out_entry = found;
    return BERTH_OK;
}

// The method of a layer, with its required slots.
static berth_status get_method(const berth_building *building, const berth_linear *linear,
                               const berth_quant_method **out_method) {
    const berth_quant_entry *entry = building->quantization;
    berth_plugin_enter(entry->owner, "get_quant_method");
    const berth_quant_method *method =
        entry->config.get_quant_method(building->face.host, building->face.config, linear);
    BERTH_TRY_NOTE(berth_plugin_leave(method == NULL ? BERTH_UNSUPPORTED : BERTH_OK),
                   "building layer '%s'", linear->prefix);
    const char *missing = !BERTH_HAS(method, name)             ? "name"
                          : !BERTH_HAS(method, create_weights) ? "create_weights"
                          : !BERTH_HAS(method, apply)          ? "apply"
                                                               : NULL;
    if (missing != NULL) {
        return BERTH_FAIL(INTERNAL,
                          "plugin %s: berth_quant_method of scheme '%s' for layer '%s': the "
                          "required slot '%s' is not set",
                          entry->owner->id, entry->config.name, linear->prefix, missing);
    }
    *out_method = method;
    return BERTH_OK;
}

berth_status berth_quantization_build(berth_building *building, const berth_linear *linear,
                                      berth_value x, berth_value *out_y) {
    const berth_quant_method *method = NULL;
    const berth_owner *owner = building->quantization->owner;
    BERTH_TRY(get_method(building, linear, &method));
    berth_value weights[BERTH_MAX_WEIGHTS] = {0};
    berth_plugin_enter(owner, "create_weights");
    method->create_weights(&building->face, linear, weights);
    BERTH_TRY(berth_plugin_leave(BERTH_OK));
    berth_plugin_enter(owner, "apply");
    *out_y = method->apply(&building->face, linear, weights, x);
    return berth_plugin_leave(BERTH_OK);
}
