// SPDX-License-Identifier: Apache-2.0
// Input: a registry, a checkpoint. Output: the model's graph with its weights found. The only place
// that calls a model class.
#include "model/building.h"

#include <string.h>

#include "base/convert.h"
#include "base/log.h"
#include "base/text.h"
#include "model/config_json.h"

#define ARENA_LIMIT ((size_t)256 << 20)
#define TEXT_BYTES  2048

// ---- which model class --------------------------------------------------------------------------

// "Llama" of "LlamaForCausalLM", "GPT2" of "GPT2LMHeadModel": what architectures differ in.
static berth_str stem_of(const char *architecture) {
    const char *suffix = strstr(architecture, "For");
    suffix = suffix == NULL ? strstr(architecture, "LMHead") : suffix;
    const size_t size = suffix == NULL ? strlen(architecture) : (size_t)(suffix - architecture);
    return (berth_str){.data = architecture, .size = size};
}

static const char *stem(berth_arena *arena, const char *architecture) {
    return berth_arena_copy(arena, stem_of(architecture));
}

// Whether a model_type such as "gpt_neox" or "gemma3_text" is that of "GPTNeoX", "Gemma3".
static bool is_type_of(const char *type, berth_str name) {
    size_t matched = 0;
    for (; *type != '\0' && strcmp(type, "_text") != 0; ++type) {
        if (*type == '_') {
            continue;
        }
        if (matched == name.size || (*type | 0x20) != (name.data[matched] | 0x20)) {
            return false;
        }
        ++matched;
    }
    return matched == name.size;
}

// By the name of the class; config.json without one gives its model_type.
static const berth_model_entry *find_model(const berth_registry *registry, const char *name) {
    const berth_model_entry *found = berth_registry_find_model(registry, name);
    for (size_t i = 0; found == NULL && i < berth_registry_model_count(registry); ++i) {
        const berth_model_entry *entry = berth_registry_model_at(registry, i);
        found = is_type_of(name, stem_of(entry->model.architecture)) ? entry : NULL;
    }
    return found;
}

// Of a model that also sees or hears, Gemma3ForConditionalGeneration: what its text part is.
static const berth_model_entry *find_text_model(const berth_registry *registry,
                                                const berth_checkpoint *checkpoint) {
    const char *architecture = berth_checkpoint_architecture(checkpoint);
    const berth_json *config = berth_checkpoint_config(checkpoint);
    berth_str type = {0};
    if (!berth_str_ends_with(berth_str_from(architecture), BERTH_STR("ForConditionalGeneration")) ||
        !berth_json_has(config, BERTH_TEXT_MODEL_TYPE) ||
        berth_json_get_str(config, BERTH_TEXT_MODEL_TYPE, &type) != BERTH_OK) {
        berth_status_clear();
        return NULL;
    }
    const berth_model_entry *found = find_model(registry, type.data);
    if (found != NULL) {
        BERTH_INFO("model", "%s: %s reads and writes text only, as %s", architecture,
                   berth_checkpoint_directory(checkpoint), found->model.architecture);
    }
    return found;
}

static berth_status no_model(const berth_registry *registry, const char *architecture,
                             berth_arena *arena) {
    const size_t count = berth_registry_model_count(registry);
    const char **stems = BERTH_ARENA_ARRAY(arena, const char *, count);
    const char *wanted = stem(arena, architecture);
    if (stems == NULL || wanted == NULL) {
        return berth_arena_exhausted(arena, "names of architectures");
    }
    berth_text known;
    berth_text_init(&known, TEXT_BYTES);
    for (size_t i = 0; i < count; ++i) {
        const char *name = berth_registry_model_at(registry, i)->model.architecture;
        stems[i] = stem(arena, name);
        berth_text_add_format(&known, "%s%s", i == 0 ? "" : ", ", name);
    }
    const char *nearest = berth_str_nearest(berth_str_from(wanted), stems, count);
    const char *name = architecture;
    for (size_t i = 0; i < count && nearest != NULL; ++i) {
        name =
            stems[i] == nearest ? berth_registry_model_at(registry, i)->model.architecture : name;
    }
    const berth_str list = berth_text_str(&known);
    const berth_status status =
        nearest != NULL
            ? BERTH_FAIL(UNSUPPORTED,
                         "architecture '%s' is registered by no plugin; the nearest one is '%s'",
                         architecture, name)
            : BERTH_FAIL(UNSUPPORTED,
                         "architecture '%s' is registered by no plugin; registered: " BERTH_STR_FMT,
                         architecture, BERTH_STR_ARG(list));
    berth_text_deinit(&known);
    return status;
}

// ---- the build ----------------------------------------------------------------------------------

static berth_status run_build(berth_building *building, const berth_model_entry *entry,
                              const berth_json *config, berth_graph **out_graph) {
    BERTH_TRY(berth_graph_begin(building->registry, entry->model.architecture, &building->graph));
    berth_building_open(building, config);
    berth_plugin_enter(entry->owner, "build");
    entry->model.build(&building->face);
    if (berth_plugin_leave(BERTH_OK) == BERTH_OK && !building->is_described) {
        berth_graph_fail(building->graph, BERTH_INTERNAL,
                         "the model class does not describe itself");
    }
    return berth_graph_finish(building->graph, out_graph);
}

berth_status berth_building_collect(const berth_building *building, berth_model_build *build) {
    const size_t count = building->kv_caches.count;
    berth_kv_cache_spec *caches = BERTH_ARENA_ARRAY(build->arena, berth_kv_cache_spec, count);
    if (caches == NULL) {
        return berth_arena_exhausted(build->arena, "cache specifications");
    }
    if (count > 0) {
        memcpy(caches, building->kv_caches.data, count * sizeof *caches);
    }
    build->kv_caches = caches;
    build->kv_cache_count = count;
    build->description = building->description;
    const size_t scheme_count = building->schemes.count;
    berth_layer_scheme *schemes = BERTH_ARENA_ARRAY(build->arena, berth_layer_scheme, scheme_count);
    if (schemes == NULL) {
        return berth_arena_exhausted(build->arena, "schemes");
    }
    if (scheme_count > 0) {
        memcpy(schemes, building->schemes.data, scheme_count * sizeof *schemes);
    }
    build->schemes = schemes;
    build->host = building->face.host;
    build->scheme_count = scheme_count;
    return berth_parameters_list(building->parameters, &build->weights, &build->weight_count);
}

static berth_status build_with(berth_building *building, const berth_model_entry *entry,
                               const berth_checkpoint *checkpoint, berth_model_build *build) {
    BERTH_TRY(berth_parameters_create(checkpoint, &entry->model, building->activation, build->arena,
                                      &building->parameters));
    berth_map_init(&building->cache_layers);
    berth_status status =
        run_build(building, entry, berth_checkpoint_config(checkpoint), &build->graph);
    if (status == BERTH_OK) {
        status = berth_parameters_check(building->parameters);
    }
    if (status == BERTH_OK) {
        berth_kv_method_report(building);
        status = berth_building_collect(building, build);
    }
    berth_parameters_destroy(building->parameters);
    berth_map_deinit(&building->cache_layers);
    berth_array_free(&building->kv_caches);
    berth_array_free(&building->kv_codes);
    berth_array_free(&building->schemes);
    return status;
}

// ---- what everything is built of ----------------------------------------------------------------

berth_building berth_building_of(const berth_model_request *request, const berth_scheme *scheme,
                                 berth_arena *arena) {
    return (berth_building){
        .registry = request->registry,
        .config = request->config,
        .activation = request->activation,
        .quantization = scheme->entry,
        .quant_config = scheme->document != NULL ? scheme->document
                                                 : berth_checkpoint_config(request->checkpoint),
        .arena = arena,
    };
}

berth_status berth_scheme_choose(const berth_model_request *request, berth_scheme *out) {
    const berth_json *document = NULL;
    BERTH_TRY(berth_quant_document_read(request->registry, request->checkpoint, &document,
                                        &out->document));
    berth_building building = berth_building_of(request, out, NULL);
    const berth_status status =
        berth_quantization_choose(&building, request->checkpoint, request->config->quantization);
    out->entry = building.quantization;
    if (status != BERTH_OK) {
        berth_scheme_deinit(out);
    }
    return status;
}

void berth_scheme_deinit(berth_scheme *scheme) {
    berth_json_destroy(scheme->document);
    *scheme = (berth_scheme){.entry = NULL};
}

static berth_status create(const berth_model_request *request, berth_model_build *build) {
    const berth_registry *registry = request->registry;
    if (!berth_can_convert(request->activation)) {
        return BERTH_FAIL(UNSUPPORTED, "activations of type %s",
                          berth_dtype_name(request->activation));
    }
    const char *architecture = berth_checkpoint_architecture(request->checkpoint);
    const berth_model_entry *entry = find_model(registry, architecture);
    entry = entry == NULL ? find_text_model(registry, request->checkpoint) : entry;
    if (entry == NULL) {
        return no_model(registry, architecture, build->arena);
    }
    build->architecture = entry->model.architecture;
    build->quantization = build->chosen.entry->config.name;
    build->owner = entry->owner;
    build->names = &entry->model;
    berth_building building = berth_building_of(request, &build->chosen, build->arena);
    return build_with(&building, entry, request->checkpoint, build);
}

// ---- entry points -------------------------------------------------------------------------------

berth_status berth_model_build_new(berth_model_build **out_build) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create((size_t)64 << 10, ARENA_LIMIT, &arena));
    berth_model_build *build = BERTH_ARENA_NEW(arena, berth_model_build);
    if (build == NULL) {
        berth_arena_destroy(arena);
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a model");
    }
    build->arena = arena;
    *out_build = build;
    return BERTH_OK;
}

berth_status berth_model_create_of(const berth_model_request *request, berth_scheme *scheme,
                                   berth_model_build **out_build) {
    berth_model_build *build = NULL;
    berth_status status = berth_model_build_new(&build);
    if (status != BERTH_OK) {
        berth_scheme_deinit(scheme);
        return status;
    }
    build->chosen = *scheme;
    *scheme = (berth_scheme){.entry = NULL};
    status = create(request, build);
    if (status != BERTH_OK) {
        berth_status_note(__FILE__, __LINE__, "building the model of %s",
                          berth_checkpoint_directory(request->checkpoint));
        berth_model_destroy(build);
        return status;
    }
    *out_build = build;
    return BERTH_OK;
}

berth_status berth_model_create(const berth_registry *registry, const berth_config *config,
                                const berth_checkpoint *checkpoint, berth_dtype activation,
                                berth_model_build **out_build) {
    const berth_model_request request = {
        .registry = registry,
        .config = config,
        .checkpoint = checkpoint,
        .activation = activation,
    };
    berth_scheme scheme = {.entry = NULL};
    BERTH_TRY_NOTE(berth_scheme_choose(&request, &scheme), "building the model of %s",
                   berth_checkpoint_directory(checkpoint));
    return berth_model_create_of(&request, &scheme, out_build);
}

// Why the cast: weights are the build's own, and nobody else's to change.
static void move_weight(const berth_weight *weight, berth_value value) {
    ((berth_weight *)(uintptr_t)weight)->value = value;
}

static berth_status find_weight(const berth_model_build *build, const berth_map *parameters,
                                const berth_weight *weight) {
    const uint32_t *value = berth_map_find(parameters, berth_str_from(weight->name));
    if (value == NULL) {
        return BERTH_FAIL(INTERNAL, "graph '%s' has lost the parameter '%s'", build->graph->name,
                          weight->name);
    }
    move_weight(weight, *value);
    // What a scheme makes is known to the layer, too.
    for (size_t i = 0; weight->made_by != NULL && i < weight->made_by->made_count; ++i) {
        if (strcmp(weight->made_by->made[i]->name, weight->name) == 0) {
            move_weight(weight->made_by->made[i], *value);
        }
    }
    return BERTH_OK;
}

berth_status berth_model_adopt(berth_model_build *build, berth_graph *graph) {
    berth_map parameters = {0};
    berth_status status = BERTH_OK;
    berth_graph_destroy(build->graph);
    build->graph = graph;
    for (size_t i = 1; i < graph->value_count && status == BERTH_OK; ++i) {
        const berth_graph_value *value = &graph->values[i];
        if (value->kind == BERTH_VALUE_PARAMETER) {
            status = berth_map_add(&parameters, berth_str_from(value->name), (uint32_t)i);
        }
    }
    for (size_t i = 0; i < build->weight_count && status == BERTH_OK; ++i) {
        if (build->weights[i].value != BERTH_VALUE_NONE) {
            status = find_weight(build, &parameters, &build->weights[i]);
        }
    }
    berth_map_deinit(&parameters);
    return status;
}

void berth_model_destroy(berth_model_build *build) {
    if (build == NULL) {
        return;
    }
    berth_graph_destroy(build->graph);
    berth_scheme_deinit(&build->chosen);
    berth_arena_destroy(build->arena);
}
