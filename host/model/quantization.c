// SPDX-License-Identifier: Apache-2.0
// Input: the registered quantization configs, what a checkpoint says about itself, a linear layer.
// Output: the scheme of the checkpoint, and the layer's nodes. The only place that calls
// quantization configs and methods before weights are loaded; "unquantized" is one of them and gets
// no favour but that others may leave a layer to it.
#include <stddef.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "model/building.h"
#include "model/pieces.h"

#define TEXT_BYTES  1024
#define UNQUANTIZED "unquantized"
#define MAX_SCHEMES 64 // of which the nearest is looked for

// ---- which scheme -------------------------------------------------------------------------------

static berth_status ask(const berth_building *building, const berth_quant_entry *entry,
                        bool *out_is_match) {
    if (entry->config.matches == NULL) {
        *out_is_match = false;
        return BERTH_OK;
    }
    berth_plugin_enter(entry->owner, "matches");
    const berth_status status = entry->config.matches(building->face.host, building->quant_config);
    *out_is_match = status == BERTH_OK;
    const berth_status left = berth_plugin_leave(status);
    return left == BERTH_NOT_FOUND ? BERTH_OK : left;
}

// The name of which the wanted one is a kind: "awq" of "awq_marlin".
static const char *find_stem(berth_str wanted, const char *const *names, size_t count) {
    const char *found = NULL;
    for (size_t i = 0; i < count; ++i) {
        const berth_str name = berth_str_from(names[i]);
        if (berth_str_starts_with(wanted, name) &&
            (found == NULL || name.size > berth_str_from(found).size)) {
            found = names[i];
        }
    }
    return found;
}

// "; the nearest one is 'x'" or "; registered: a, b, c".
static void add_known(const berth_registry *registry, berth_str wanted, berth_text *text) {
    const char *names[MAX_SCHEMES];
    size_t count = 0;
    while (count < MAX_SCHEMES && count < berth_registry_quant_count(registry)) {
        names[count] = berth_registry_quant_at(registry, count)->config.name;
        ++count;
    }
    const char *nearest = berth_str_nearest(wanted, names, count);
    nearest = nearest == NULL ? find_stem(wanted, names, count) : nearest;
    if (nearest != NULL) {
        berth_text_add_format(text, "; the nearest one is '%s'", nearest);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        berth_text_add_format(text, "%s%s", i == 0 ? "; registered: " : ", ", names[i]);
    }
}

static berth_status nobody(const berth_building *building, const berth_checkpoint *checkpoint,
                           const char *wanted) {
    berth_str method = BERTH_STR("of a kind that its config.json does not name");
    const berth_json *name =
        berth_json_find(building->quant_config, "quantization_config.quant_method");
    if (wanted != NULL) {
        method = berth_str_from(wanted);
    } else if (name != NULL && berth_json_kind_of(name) == BERTH_JSON_STRING) {
        BERTH_TRY(berth_json_get_str(name, "", &method));
    }
    berth_text known;
    berth_text_init(&known, TEXT_BYTES);
    add_known(building->registry, method, &known);
    const berth_str list = berth_text_str(&known);
    const berth_status status = BERTH_FAIL(
        UNSUPPORTED,
        "%s: %s quantization '" BERTH_STR_FMT "' is registered by no plugin" BERTH_STR_FMT,
        berth_checkpoint_directory(checkpoint), wanted != NULL ? "the" : "the checkpoint's",
        BERTH_STR_ARG(method), BERTH_STR_ARG(list));
    berth_text_deinit(&known);
    return status;
}

// The first scheme that takes the checkpoint whatever name it carries.
static const berth_quant_entry *find_override(const berth_building *building, const char *wanted) {
    const berth_registry *registry = building->registry;
    for (size_t i = 0; i < berth_registry_quant_count(registry); ++i) {
        const berth_quant_entry *entry = berth_registry_quant_at(registry, i);
        if (!BERTH_HAS(&entry->config, override_quantization_method)) {
            continue;
        }
        berth_plugin_enter(entry->owner, "override_quantization_method");
        const bool is_taken = entry->config.override_quantization_method(
                                  building->face.host, building->quant_config, wanted) != 0;
        if (berth_plugin_leave(BERTH_OK) == BERTH_OK && is_taken) {
            return entry;
        }
    }
    return NULL;
}

static berth_status find_match(const berth_building *building, const berth_checkpoint *checkpoint,
                               const berth_quant_entry **out_found) {
    const char *directory = berth_checkpoint_directory(checkpoint);
    const berth_registry *registry = building->registry;
    const berth_quant_entry *found = NULL;
    for (size_t i = 0; i < berth_registry_quant_count(registry); ++i) {
        const berth_quant_entry *entry = berth_registry_quant_at(registry, i);
        bool is_match = false;
        BERTH_TRY_NOTE(ask(building, entry, &is_match), "asking whether %s is of scheme '%s'",
                       directory, entry->config.name);
        if (is_match && found != NULL) {
            return BERTH_FAIL(UNSUPPORTED,
                              "%s: both '%s' of plugin %s and '%s' of plugin %s claim the "
                              "checkpoint's quantization; load one of them",
                              directory, found->config.name, found->owner->id, entry->config.name,
                              entry->owner->id);
        }
        found = is_match ? entry : found;
    }
    *out_found = found;
    return BERTH_OK;
}

static const berth_quant_entry *find_named(const berth_registry *registry, const char *name) {
    for (size_t i = 0; i < berth_registry_quant_count(registry); ++i) {
        const berth_quant_entry *entry = berth_registry_quant_at(registry, i);
        if (strcmp(entry->config.name, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

const berth_quant_entry *berth_quantization_plain(const berth_registry *registry) {
    return find_named(registry, UNQUANTIZED);
}

static berth_status check_activation(const berth_building *building,
                                     const berth_checkpoint *checkpoint,
                                     const berth_quant_entry *entry) {
    const char *dtype = berth_dtype_name(building->activation);
    for (uint64_t i = 0; i < entry->config.activation_dtype_count; ++i) {
        if (strcmp(entry->config.activation_dtypes[i], dtype) == 0) {
            return BERTH_OK;
        }
    }
    return entry->config.activation_dtype_count == 0
               ? BERTH_OK
               : BERTH_FAIL(UNSUPPORTED,
                            "%s: quantization '%s' computes with activations of %s and the like, "
                            "not of %s; choose with --dtype",
                            berth_checkpoint_directory(checkpoint), entry->config.name,
                            entry->config.activation_dtypes[0], dtype);
}

// Whether the scheme makes codes of what the checkpoint has as floats.
static bool is_at_load(const berth_building *building, const berth_quant_entry *entry) {
    return entry != berth_quantization_plain(building->registry) &&
           !berth_json_has(building->quant_config, "quantization_config") &&
           !berth_json_has(building->quant_config, "compression_config");
}

berth_status berth_quantization_choose(berth_building *building, const berth_checkpoint *checkpoint,
                                       const char *wanted) {
    building->face.host = berth_registry_host(building->registry);
    if (wanted != NULL && find_named(building->registry, wanted) == NULL) {
        return nobody(building, checkpoint, wanted);
    }
    const berth_quant_entry *found = find_override(building, wanted);
    if (found == NULL) {
        BERTH_TRY(find_match(building, checkpoint, &found));
    }
    if (found == NULL) {
        return nobody(building, checkpoint, NULL);
    }
    if (wanted != NULL && strcmp(wanted, found->config.name) != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "%s: the quantization asked for is '%s', the checkpoint's is '%s'",
                          berth_checkpoint_directory(checkpoint), wanted, found->config.name);
    }
    building->quantization = found;
    BERTH_TRY(berth_quant_ignore_check(building, checkpoint, is_at_load(building, found)));
    return check_activation(building, checkpoint, found);
}

// ---- which method -------------------------------------------------------------------------------

// The slots that a method has, over those that are there.
static void take_slots(berth_quant_method *to, const berth_quant_method *from) {
    const size_t size = from->size < sizeof *to ? from->size : sizeof *to;
    for (size_t at = sizeof to->size; at + sizeof(void *) <= size; at += sizeof(void *)) {
        const char *word = (const char *)from + at;
        void *slot = NULL;
        memcpy(&slot, word, sizeof slot);
        if (slot != NULL) {
            memcpy((char *)to + at, word, sizeof slot);
        }
    }
    to->size = sizeof *to;
}

static const berth_quant_method *ask_method(const berth_building *building,
                                            const berth_quant_entry *entry, berth_processing *layer,
                                            berth_status *out_status) {
    layer->asked = entry;
    layer->building = building;
    berth_plugin_enter(entry->owner, "get_quant_method");
    const berth_quant_method *method =
        entry->config.get_quant_method(building->face.host, building->quant_config, &layer->linear);
    const bool is_answer = method != NULL || layer->layer.is_unquantized != 0;
    *out_status = berth_plugin_leave(is_answer ? BERTH_OK : BERTH_UNSUPPORTED);
    return method;
}

// What the scheme whose place this one took says of a layer: a slot that the replacing scheme
// calls while it is asked itself.
static const berth_quant_method *inherit(const berth_linear *linear) {
    berth_processing *layer =
        (void *)((char *)linear->quant - offsetof(berth_processing, layer)); // which it is part of
    const berth_quant_entry *own = layer->asked;
    berth_status status = BERTH_OK;
    if (layer->inherited != NULL) {
        return layer->inherited;
    }
    if (own->replaced == NULL) {
        (void)BERTH_FAIL(UNSUPPORTED, "scheme '%s' of plugin %s replaces none and inherits nothing",
                         own->config.name, own->owner->id);
        return NULL;
    }
    layer->inherited = ask_method(layer->building, own->replaced, layer, &status);
    layer->asked = own;
    if (layer->inherited != NULL) {
        take_slots(&layer->method, layer->inherited);
    }
    return layer->inherited;
}

// The layer and all it points to, in the arena: the method sees it again when weights are loaded.
static berth_status copy_linear(berth_arena *arena, const berth_linear *from, berth_linear *out) {
    const berth_shard **list = BERTH_ARENA_ARRAY(arena, const berth_shard *, from->shard_count);
    berth_shard *shards = BERTH_ARENA_ARRAY(arena, berth_shard, from->shard_count);
    *out = *from;
    out->prefix = berth_arena_strdup(arena, from->prefix);
    out->alias = from->alias == NULL ? NULL : berth_arena_strdup(arena, from->alias);
    out->layer_class =
        berth_arena_strdup(arena, from->layer_class == NULL ? "" : from->layer_class);
    bool is_complete = list != NULL && shards != NULL && out->prefix != NULL &&
                       out->layer_class != NULL && (out->alias != NULL) == (from->alias != NULL);
    const berth_parameter all = {.shards = from->shards, .shard_count = from->shard_count};
    for (uint64_t i = 0; is_complete && i < from->shard_count; ++i) {
        shards[i] = berth_shard_at(&all, i);
        shards[i].id = berth_arena_strdup(arena, shards[i].id);
        list[i] = &shards[i];
        is_complete = shards[i].id != NULL;
    }
    out->shards = list;
    return is_complete ? BERTH_OK : berth_arena_exhausted(arena, "layers");
}

// The modules of the layer as the checkpoint names them.
static berth_status name_modules(const berth_building *building, berth_processing *out) {
    const berth_linear *linear = &out->linear;
    const uint64_t room = linear->shard_count > 0 ? linear->shard_count : 1;
    const char **names = BERTH_ARENA_ARRAY(building->arena, const char *, room);
    if (names == NULL) {
        return berth_arena_exhausted(building->arena, "layers");
    }
    out->layer.names = names;
    for (uint64_t i = 0; i < linear->shard_count; ++i) {
        const char *name =
            berth_parameters_module(building->parameters, linear->prefix, linear->shards[i]->id);
        if (name != NULL) {
            names[out->layer.name_count++] = name;
        }
    }
    if (out->layer.name_count == 0) {
        const char *name = berth_parameters_module(building->parameters, linear->prefix, NULL);
        names[out->layer.name_count++] = name == NULL ? linear->prefix : name;
    }
    return BERTH_OK;
}

static berth_status describe(const berth_building *building, const berth_linear *linear,
                             berth_processing **out) {
    berth_processing *own = BERTH_ARENA_NEW(building->arena, berth_processing);
    if (own == NULL) {
        return berth_arena_exhausted(building->arena, "layers");
    }
    BERTH_TRY(copy_linear(building->arena, linear, &own->linear));
    own->name = own->linear.prefix;
    own->layer = (berth_quant_layer){
        .size = sizeof own->layer,
        .config = building->quant_config,
        .inherit = inherit,
    };
    own->linear.quant = &own->layer;
    *out = own;
    return BERTH_OK;
}

// The modules of all experts, of both stacks; the experts as one where the file stores them so.
static berth_status name_experts(const berth_building *building, const berth_experts *experts,
                                 berth_processing *out) {
    berth_map modules;
    berth_map_init(&modules);
    berth_status status =
        berth_parameters_modules(building->parameters, experts->w13->prefix, &modules);
    if (status == BERTH_OK) {
        status = berth_parameters_modules(building->parameters, experts->w2->prefix, &modules);
    }
    const char **names = BERTH_ARENA_ARRAY(building->arena, const char *, modules.count + 1u);
    if (status == BERTH_OK && names == NULL) {
        status = berth_arena_exhausted(building->arena, "layers");
    }
    for (uint32_t i = 0; status == BERTH_OK && i < modules.count; ++i) {
        names[i] = modules.entries[i].key.data;
    }
    if (status == BERTH_OK && modules.count == 0) {
        names[0] = berth_arena_strdup(building->arena, experts->prefix);
        status = names[0] == NULL ? berth_arena_exhausted(building->arena, "layers") : BERTH_OK;
    }
    out->layer.names = names;
    out->layer.name_count = modules.count > 0 ? modules.count : 1;
    berth_map_deinit(&modules);
    return status;
}

static berth_status check_method(const berth_processing *layer) {
    const berth_quant_method *method = &layer->method;
    const char *missing = method->name == NULL             ? "name"
                          : method->create_weights == NULL ? "create_weights"
                          : method->apply == NULL          ? "apply"
                                                           : NULL;
    return missing == NULL
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL,
                            "plugin %s: berth_quant_method of scheme '%s' for layer '%s': the "
                            "required slot '%s' is not set",
                            layer->scheme->owner->id, layer->scheme->config.name,
                            layer->linear.prefix, missing);
}

// A method of ABI 1.0 knows no experts: they are not quantized, as they were not then.
static bool is_left_alone(const berth_processing *layer, const berth_quant_method *method) {
    return layer->linear.stack_size > 0 &&
           method->size <= offsetof(berth_quant_method, process_weights_after_loading);
}

// Whether the layer is the embeddings once more: no scheme made anything of those.
static bool is_tied(const berth_building *building, const berth_processing *layer) {
    const berth_linear *linear = &layer->linear;
    return linear->alias != NULL &&
           !berth_parameters_has_module(building->parameters, linear->prefix) &&
           berth_parameters_has_module(building->parameters, linear->alias);
}

// The method of a layer, with its required slots, as the host's own struct.
static berth_status get_method(const berth_building *building, berth_processing *layer) {
    berth_status status = BERTH_OK;
    bool is_left = false;
    BERTH_TRY(berth_quant_ignore_find(building, layer, &is_left));
    is_left = is_left || is_tied(building, layer);
    layer->scheme = building->quantization;
    const berth_quant_method *method =
        is_left ? NULL : ask_method(building, building->quantization, layer, &status);
    const berth_quant_entry *plain = berth_quantization_plain(building->registry);
    if (method != NULL && is_left_alone(layer, method)) {
        method = NULL;
    }
    if (status == BERTH_OK && method == NULL && plain != NULL) {
        layer->scheme = plain;
        layer->method = (berth_quant_method){.size = 0}; // what was inherited is of no use
        method = ask_method(building, plain, layer, &status);
    }
    if (status != BERTH_OK) {
        berth_processing_note(layer, "building");
        return status;
    }
    if (method == NULL) {
        return BERTH_FAIL(UNSUPPORTED, "layer '%s' is not quantized, and no plugin registers '%s'",
                          layer->linear.prefix, UNQUANTIZED);
    }
    take_slots(&layer->method, method);
    return check_method(layer);
}

// ---- reports ------------------------------------------------------------------------------------

void berth_processing_note(const berth_processing *layer, const char *doing) {
    if (layer != NULL) {
        berth_status_note(__FILE__, __LINE__, "%s layer '%s' of scheme '%s'", doing, layer->name,
                          layer->scheme->config.name);
    }
}

// ---- its nodes ----------------------------------------------------------------------------------

berth_status berth_quantization_take(berth_building *building, const berth_parameter *declared,
                                     berth_weight *weight) {
    berth_processing *layer = building->processing;
    if (layer == NULL || declared->role > BERTH_PARAMETER_MADE) {
        return BERTH_FAIL(INTERNAL,
                          "parameter '%s': only create_weights of a quantization method "
                          "declares what is stored or made",
                          declared->name);
    }
    const bool is_made = declared->role == BERTH_PARAMETER_MADE;
    size_t *count = is_made ? &layer->made_count : &layer->stored_count;
    if (*count >= BERTH_MAX_WEIGHTS) {
        return BERTH_FAIL(INTERNAL, "layer '%s' has more than %d parameters", layer->name,
                          BERTH_MAX_WEIGHTS);
    }
    (is_made ? layer->made : layer->stored)[(*count)++] = weight;
    if (is_made) {
        weight->made_by = layer;
    }
    return BERTH_OK;
}

static berth_status create_weights(berth_building *building, berth_processing *layer,
                                   berth_value *weights) {
    building->processing = layer;
    berth_plugin_enter(layer->scheme->owner, "create_weights");
    layer->method.create_weights(&building->face, &layer->linear, weights);
    const berth_status status = berth_plugin_leave(BERTH_OK);
    building->processing = NULL;
    if (status == BERTH_OK && layer->made_count > 0 &&
        layer->method.process_weights_after_loading == NULL) {
        return BERTH_FAIL(INTERNAL,
                          "plugin %s: berth_quant_method '%s' declares parameters that are made, "
                          "and process_weights_after_loading is not set",
                          layer->scheme->owner->id, layer->method.name);
    }
    return status;
}

static berth_status report(berth_building *building, const char *name,
                           const berth_processing *layer) {
    return berth_array_push(&building->schemes, (berth_layer_scheme){
                                                    .layer = name,
                                                    .scheme = layer->scheme->config.name,
                                                    .method = layer->method.name,
                                                    .plugin = layer->scheme->owner->id,
                                                    .of = layer,
                                                });
}

static berth_status check_matrix(const berth_processing *layer) {
    return layer->linear.is_matrix == 0 || layer->method.apply_matrix != NULL
               ? BERTH_OK
               : BERTH_FAIL(UNSUPPORTED,
                            "'%s': the method '%s' of scheme '%s' (plugin %s) gives no weight in "
                            "floats, which is what the layer multiplies by",
                            layer->linear.prefix, layer->method.name, layer->scheme->config.name,
                            layer->scheme->owner->id);
}

berth_status berth_quantization_build(berth_building *building, const berth_linear *linear,
                                      berth_value x, berth_value *out_weight, berth_value *out_y) {
    berth_processing *layer = NULL;
    berth_value weights[BERTH_MAX_WEIGHTS] = {0};
    BERTH_TRY(describe(building, linear, &layer));
    BERTH_TRY(name_modules(building, layer));
    BERTH_TRY(get_method(building, layer));
    BERTH_TRY(check_matrix(layer));
    BERTH_TRY(create_weights(building, layer, weights));
    const bool is_matrix = layer->linear.is_matrix != 0;
    berth_plugin_enter(layer->scheme->owner, is_matrix ? "apply_matrix" : "apply");
    *out_y = is_matrix ? layer->method.apply_matrix(&building->face, &layer->linear, weights, x,
                                                    out_weight)
                       : layer->method.apply(&building->face, &layer->linear, weights, x);
    BERTH_TRY(berth_plugin_leave(BERTH_OK));
    return report(building, layer->linear.prefix, layer);
}

// ---- experts ------------------------------------------------------------------------------------

// The second stack has the method, the notes and the modules of the first.
static berth_status describe_second(const berth_building *building, const berth_linear *linear,
                                    berth_processing *first, berth_processing **out) {
    BERTH_TRY(describe(building, linear, out));
    (*out)->scheme = first->scheme;
    (*out)->method = first->method;
    (*out)->linear.quant = &first->layer;
    return BERTH_OK;
}

static berth_status check_experts(const berth_processing *layer, const char *prefix) {
    return layer->method.apply_experts != NULL
               ? BERTH_OK
               : BERTH_FAIL(UNSUPPORTED,
                            "'%s': the method '%s' of scheme '%s' (plugin %s) serves linear layers "
                            "and no experts",
                            prefix, layer->method.name, layer->scheme->config.name,
                            layer->scheme->owner->id);
}

// What the experts were built from, without their operands, for who builds them again.
static berth_status keep_experts(berth_arena *arena, const berth_experts *given,
                                 const berth_processing *second, berth_processing *first) {
    berth_experts *own = BERTH_ARENA_NEW(arena, berth_experts);
    berth_attribute *attributes = BERTH_ARENA_ARRAY(arena, berth_attribute, given->attribute_count);
    const berth_attribute **list =
        BERTH_ARENA_ARRAY(arena, const berth_attribute *, given->attribute_count);
    if (own == NULL || attributes == NULL || list == NULL) {
        return berth_arena_exhausted(arena, "layers");
    }
    for (uint64_t i = 0; i < given->attribute_count; ++i) {
        const berth_attribute *from = given->attributes[i];
        memcpy(&attributes[i], from,
               from->size < sizeof *attributes ? from->size : sizeof *attributes);
        attributes[i].size = sizeof *attributes;
        attributes[i].name = berth_arena_strdup(arena, from->name);
        attributes[i].str = from->str == NULL ? NULL : berth_arena_strdup(arena, from->str);
        list[i] = &attributes[i];
        if (attributes[i].name == NULL || (attributes[i].str == NULL) != (from->str == NULL)) {
            return berth_arena_exhausted(arena, "layers");
        }
    }
    *own = *given;
    own->prefix = berth_arena_strdup(arena, given->prefix);
    own->attributes = list;
    own->w13 = &first->linear;
    own->w2 = &second->linear;
    first->experts = own;
    return own->prefix == NULL ? berth_arena_exhausted(arena, "layers") : BERTH_OK;
}

berth_status berth_quantization_experts(berth_building *building, const berth_experts *given,
                                        berth_value *out_y) {
    berth_processing *first = NULL;
    berth_processing *second = NULL;
    berth_value w13[BERTH_MAX_WEIGHTS] = {0};
    berth_value w2[BERTH_MAX_WEIGHTS] = {0};
    BERTH_TRY(describe(building, given->w13, &first));
    BERTH_TRY(name_experts(building, given, first));
    BERTH_TRY(get_method(building, first));
    BERTH_TRY(check_experts(first, given->prefix));
    BERTH_TRY(describe_second(building, given->w2, first, &second));
    BERTH_TRY(create_weights(building, first, w13));
    BERTH_TRY(create_weights(building, second, w2));
    BERTH_TRY(keep_experts(building->arena, given, second, first));
    berth_plugin_enter(first->scheme->owner, "apply_experts");
    *out_y = first->method.apply_experts(&building->face, first->experts, w13, w2);
    BERTH_TRY(berth_plugin_leave(BERTH_OK));
    return report(building, first->experts->prefix, first);
}
