// SPDX-License-Identifier: Apache-2.0
// Input: calls of models, layers and quantization methods. Output: a graph, its weights and caches.
// Every slot copies the struct that it is given, since a plugin may know a shorter one, and does
// nothing once the build has failed.
#include <inttypes.h>
#include <string.h>

#include "base/convert.h"

#include "model/building.h"

#define MAX_DEPTH 32 // of layers inside layers

#define TEXT_BYTES 1024

// ---- helpers ------------------------------------------------------------------------------------

static berth_building *behind(const berth_builder *builder) {
    return builder->context;
}

// Ends the build with this thread's report.
static void stop(berth_building *building, berth_status status) {
    if (status != BERTH_OK) {
        berth_graph_fail(building->graph, status, berth_status_message());
    }
}

// The same for what a layer's method declares.
static void stop_declaring(berth_building *building, berth_status status) {
    if (status != BERTH_OK) {
        berth_processing_note(building->processing, "building");
        stop(building, status);
    }
}

// min(sizes) bytes of a struct that begins with its size; the rest stays zero.
#define READ(type, from) *(type *)copy_struct(&(type){0}, sizeof(type), (from))
static void *copy_struct(void *to, uint64_t own_size, const void *from) {
    uint64_t size = 0;
    memcpy(&size, from, sizeof size);
    memcpy(to, from, size < own_size ? size : own_size);
    memcpy(to, &own_size, sizeof own_size);
    return to;
}

static bool is_count(int64_t value) {
    return value >= 1 && value <= BERTH_CONFIG_COUNT_MAX;
}

// ---- what the host must know --------------------------------------------------------------------

static berth_status set_description(berth_building *building,
                                    const berth_model_description *description) {
    if (building->is_described) {
        return BERTH_FAIL(INTERNAL, "the model describes itself twice");
    }
    if (!is_count(description->vocab_size) || !is_count(description->hidden_size) ||
        !is_count(description->max_model_len) || description->layer_count < 0 ||
        description->layer_count > BERTH_CONFIG_LAYER_MAX) {
        return BERTH_FAIL(
            CORRUPT,
            "a model of %" PRId64 " tokens, width %" PRId64 ", context %" PRId64 " and %" PRId64
            " layers (at most %" PRId64 ") cannot be built; check config.json",
            description->vocab_size, description->hidden_size, description->max_model_len,
            description->layer_count, BERTH_CONFIG_LAYER_MAX);
    }
    building->description = *description;
    building->is_described = true;
    return BERTH_OK;
}

static void slot_describe(berth_builder *builder, const berth_model_description *description) {
    berth_building *building = behind(builder);
    if (!berth_graph_has_failed(building->graph)) {
        const berth_model_description own = READ(berth_model_description, description);
        stop(building, set_description(building, &own));
    }
}

static berth_status check_cache(const berth_building *building, const berth_kv_cache *cache) {
    if (cache->layer == NULL || !is_count(cache->num_heads) || !is_count(cache->num_kv_heads) ||
        !is_count(cache->head_size) || cache->num_heads % cache->num_kv_heads != 0 ||
        cache->sliding_window < 0 || cache->chunk_size < 0 ||
        (cache->sliding_window > 0 && cache->chunk_size > 0) ||
        (cache->is_latent != 0 && cache->num_kv_heads != 1)) {
        return BERTH_FAIL(CORRUPT,
                          "layer '%s': no cache for %" PRId64 " heads over %" PRId64
                          " key heads of size %" PRId64 ", window %" PRId64 ", chunks of %" PRId64,
                          cache->layer == NULL ? "" : cache->layer, cache->num_heads,
                          cache->num_kv_heads, cache->head_size, cache->sliding_window,
                          cache->chunk_size);
    }
    if (berth_map_find(&building->cache_layers, berth_str_from(cache->layer)) != NULL) {
        return BERTH_FAIL(INTERNAL, "layer '%s' declares its cache twice", cache->layer);
    }
    return BERTH_OK;
}

// The group of the layers that see as far back: 0 for the first kind, then on from 2.
static berth_status find_group(const berth_building *building, const berth_kv_cache *cache,
                               uint32_t *out_group) {
    *out_group = 0;
    for (size_t i = 0; i < building->kv_caches.count; ++i) {
        const berth_kv_cache_spec *known = &building->kv_caches.data[i];
        if (known->is_state != 0) {
            continue;
        }
        if (known->sliding_window == cache->sliding_window &&
            known->chunk_size == cache->chunk_size) {
            *out_group = known->group;
            return BERTH_OK;
        }
        const uint32_t next = known->group + (known->group == 0 ? 2 : 1);
        *out_group = next > *out_group ? next : *out_group;
    }
    return *out_group < BERTH_CACHE_GROUPS_MAX
               ? BERTH_OK
               : BERTH_FAIL(UNSUPPORTED, "layer '%s': layers of more than %u different windows",
                            cache->layer, BERTH_CACHE_GROUPS_MAX - 1);
}

static berth_status add_cache(berth_building *building, const berth_kv_cache *cache) {
    uint32_t group = 0;
    berth_dtype dtype = BERTH_DTYPE_NONE;
    BERTH_TRY(check_cache(building, cache));
    BERTH_TRY(find_group(building, cache, &group));
    BERTH_TRY(berth_kv_method_choose(building, cache, &dtype));
    // A state is one block; the executor allocates as many as there is memory for.
    const bool is_latent = cache->is_latent != 0;
    const berth_value_type block = {
        .size = sizeof block,
        .dtype = dtype,
        .ndim = is_latent ? 2 : 3,
        .dims = {BERTH_DIM_CONST(building->config->block_size),
                 BERTH_DIM_CONST(is_latent ? cache->head_size : cache->num_kv_heads),
                 BERTH_DIM_CONST(is_latent ? 1 : cache->head_size)},
    };
    berth_graph_state(building->graph, cache->layer, 0, &block); // keys, or both in one
    if (!is_latent) {
        berth_graph_state(building->graph, cache->layer, 1, &block); // values
    }
    const int64_t elements = berth_type_elements(&block, 0, 0);
    const char *layer = berth_arena_strdup(building->arena, cache->layer);
    if (layer == NULL) {
        return berth_arena_exhausted(building->arena, "layer names");
    }
    if (berth_graph_has_failed(building->graph) || elements < 0 || elements > INT64_MAX / 16) {
        return BERTH_FAIL(CORRUPT, "layer '%s': one block of its cache is too large", layer);
    }
    BERTH_TRY(berth_map_add(&building->cache_layers, berth_str_from(layer),
                            (uint32_t)building->kv_caches.count));
    return berth_array_push(
        &building->kv_caches,
        (berth_kv_cache_spec){
            .size = sizeof(berth_kv_cache_spec),
            .layer = layer,
            .num_heads = cache->num_heads,
            .num_kv_heads = cache->num_kv_heads,
            .head_size = cache->head_size,
            .block_size = building->config->block_size,
            .sliding_window = cache->sliding_window,
            .dtype = dtype,
            .group = group,
            .is_latent = cache->is_latent,
            .page_bytes = (is_latent ? 1 : 2) * berth_dtype_bytes(dtype, (uint64_t)elements),
            .chunk_size = cache->chunk_size,
        });
}

static void slot_kv_cache(berth_builder *builder, const berth_kv_cache *cache) {
    berth_building *building = behind(builder);
    if (!berth_graph_has_failed(building->graph)) {
        const berth_kv_cache own = READ(berth_kv_cache, cache);
        stop(building, add_cache(building, &own));
    }
}

static berth_value slot_kv_scale(berth_builder *builder, const char *layer, uint64_t state) {
    const berth_building *building = behind(builder);
    return berth_graph_has_failed(building->graph) ? BERTH_VALUE_NONE
                                                   : berth_kv_method_scale(building, layer, state);
}

// The layer's states all share its slots: one specification, whose page has all of them.
static berth_status add_slot(berth_building *building, const berth_layer_state *state,
                             const berth_value_type *type) {
    const int64_t elements = berth_type_elements(type, 0, 0);
    if (berth_graph_has_failed(building->graph) || elements < 0 || elements > INT64_MAX / 16) {
        return BERTH_FAIL(CORRUPT, "layer '%s': one slot of its state is too large", state->layer);
    }
    const uint64_t bytes = berth_dtype_bytes(type->dtype, (uint64_t)elements);
    const uint32_t *known = berth_map_find(&building->cache_layers, berth_str_from(state->layer));
    if (known != NULL && building->kv_caches.data[*known].is_state != 0) {
        building->kv_caches.data[*known].page_bytes += bytes;
        return BERTH_OK;
    }
    if (known != NULL) {
        return BERTH_FAIL(INTERNAL, "layer '%s' declares a cache and a state", state->layer);
    }
    const char *layer = berth_arena_strdup(building->arena, state->layer);
    if (layer == NULL) {
        return berth_arena_exhausted(building->arena, "layer names");
    }
    BERTH_TRY(berth_map_add(&building->cache_layers, berth_str_from(layer),
                            (uint32_t)building->kv_caches.count));
    return berth_array_push(&building->kv_caches, (berth_kv_cache_spec){
                                                      .size = sizeof(berth_kv_cache_spec),
                                                      .layer = layer,
                                                      .dtype = type->dtype,
                                                      .group = BERTH_CACHE_GROUP_STATES,
                                                      .page_bytes = bytes,
                                                      .is_state = 1,
                                                  });
}

static berth_status add_state(berth_building *building, const berth_layer_state *state) {
    const berth_dtype dtype = berth_dtype_find(berth_str_from(state->dtype));
    const bool has_slots = building->state_slots > 0; // else the executor puts them in front
    if (state->layer == NULL || state->ndim + 1 > BERTH_MAX_DIMS || !berth_can_convert(dtype)) {
        return BERTH_FAIL(CORRUPT, "layer '%s': no state of %" PRIu64 " dimensions of type '%s'",
                          state->layer == NULL ? "" : state->layer, state->ndim, state->dtype);
    }
    berth_value_type type = {.size = sizeof type, .dtype = dtype};
    if (has_slots) {
        type.dims[type.ndim++] = BERTH_DIM_CONST(building->state_slots);
    }
    for (uint64_t i = 0; i < state->ndim; ++i) {
        type.dims[type.ndim++] = BERTH_DIM_CONST(state->shape[i]);
    }
    berth_graph_state(building->graph, state->layer, state->index, &type);
    return has_slots ? BERTH_OK : add_slot(building, state, &type);
}

static void slot_state(berth_builder *builder, const berth_layer_state *state) {
    berth_building *building = behind(builder);
    if (!berth_graph_has_failed(building->graph)) {
        const berth_layer_state own = READ(berth_layer_state, state);
        stop(building, add_state(building, &own));
    }
}

// ---- values -------------------------------------------------------------------------------------

static berth_value slot_input(berth_builder *builder, const char *name) {
    return berth_graph_input(behind(builder)->graph, name);
}

static berth_value slot_parameter(berth_builder *builder, const berth_parameter *parameter) {
    berth_building *building = behind(builder);
    if (berth_graph_has_failed(building->graph)) {
        return BERTH_VALUE_NONE;
    }
    const berth_parameter own = READ(berth_parameter, parameter);
    berth_weight *weight = NULL;
    const berth_status status = berth_parameters_take(building->parameters, &own, &weight);
    if (status != BERTH_OK) {
        stop_declaring(building, status);
        return BERTH_VALUE_NONE;
    }
    weight->layer = weight->layer == NULL ? building->processing : weight->layer;
    if (own.role != BERTH_PARAMETER_RESIDENT) {
        stop_declaring(building, berth_quantization_take(building, &own, weight));
    }
    if (weight->value == BERTH_VALUE_NONE && own.role != BERTH_PARAMETER_STORED) {
        weight->value = berth_graph_parameter(building->graph, weight->name, &weight->type);
    }
    return weight->value;
}

static berth_value slot_op(berth_builder *builder, const berth_call *call) {
    berth_building *building = behind(builder);
    if (berth_graph_has_failed(building->graph)) {
        return BERTH_VALUE_NONE;
    }
    berth_call own = READ(berth_call, call);
    own.prefix = own.prefix == NULL ? "" : own.prefix;
    return berth_graph_op(building->graph, &own);
}

static berth_value slot_slice(berth_builder *builder, berth_value value, uint64_t dim,
                              int64_t start, int64_t length) {
    return berth_graph_slice(behind(builder)->graph, value, dim, start, length);
}

static berth_value slot_reshape(berth_builder *builder, berth_value value, const berth_dim *dims,
                                uint64_t ndim) {
    return berth_graph_reshape(behind(builder)->graph, value, dims, ndim);
}

static void slot_output(berth_builder *builder, const char *name, berth_value value) {
    berth_graph_output_add(behind(builder)->graph, name, value);
}

static const berth_value_type *slot_type(berth_builder *builder, berth_value value) {
    return berth_graph_type(behind(builder)->graph, value);
}

// ---- layers -------------------------------------------------------------------------------------

static berth_status give_outputs(const berth_layer_entry *entry, const berth_call *call,
                                 const berth_value *outputs) {
    const uint64_t wanted = call->output_count > 0 ? call->output_count : 1;
    for (uint64_t i = 0; i < wanted; ++i) {
        if (i >= BERTH_MAX_OUTPUTS || outputs[i] == BERTH_VALUE_NONE) {
            return BERTH_FAIL(INTERNAL, "layer %s of plugin %s gives no output %" PRIu64 " at '%s'",
                              entry->layer.name, entry->owner->id, i, call->prefix);
        }
    }
    for (uint64_t i = 0; i < call->output_count; ++i) {
        call->outputs[i] = outputs[i];
    }
    return BERTH_OK;
}

static berth_status build_layer(berth_building *building, const berth_call *call,
                                berth_value *out_first) {
    const berth_layer_entry *entry = berth_registry_find_layer(building->registry, call->name);
    if (entry == NULL) {
        return BERTH_FAIL(NOT_FOUND,
                          "'%s': no plugin registers a layer class '%s'; check the name, or load "
                          "the plugin that has it",
                          call->prefix, call->name);
    }
    if (building->depth >= MAX_DEPTH) {
        return BERTH_FAIL(INTERNAL, "'%s': layer %s of plugin %s nests more than %d layers deep",
                          call->prefix, call->name, entry->owner->id, MAX_DEPTH);
    }
    berth_value inputs[BERTH_MAX_INPUTS] = {0}; // a layer may look at inputs that it was not given
    berth_value outputs[BERTH_MAX_OUTPUTS] = {0};
    if (call->input_count > BERTH_MAX_INPUTS) {
        return BERTH_FAIL(INTERNAL, "'%s': layer %s gets more than %d inputs", call->prefix,
                          call->name, BERTH_MAX_INPUTS);
    }
    for (uint64_t i = 0; i < call->input_count; ++i) {
        inputs[i] = call->inputs[i];
    }
    berth_call inner = *call;
    inner.inputs = inputs;
    inner.outputs = outputs;
    inner.output_count = BERTH_MAX_OUTPUTS;
    ++building->depth;
    berth_plugin_enter(entry->owner, "build");
    entry->layer.build(&building->face, &inner);
    --building->depth;
    BERTH_TRY(berth_plugin_leave(BERTH_OK));
    if (berth_graph_has_failed(building->graph)) {
        return BERTH_OK; // and no result; the first failure is kept
    }
    *out_first = outputs[0];
    return give_outputs(entry, call, outputs);
}

static berth_value slot_layer(berth_builder *builder, const berth_call *call) {
    berth_building *building = behind(builder);
    if (berth_graph_has_failed(building->graph)) {
        return BERTH_VALUE_NONE;
    }
    berth_call own = READ(berth_call, call);
    own.prefix = own.prefix == NULL ? "" : own.prefix;
    own.output_count = own.outputs == NULL ? 0 : own.output_count;
    berth_value first = BERTH_VALUE_NONE;
    stop(building, build_layer(building, &own, &first));
    return berth_graph_has_failed(building->graph) ? BERTH_VALUE_NONE : first;
}

static berth_status check_linear(const berth_linear *linear) {
    if (linear->prefix == NULL || !is_count(linear->input_size) || linear->output_size < 1 ||
        (linear->shard_count > 0 && linear->shards == NULL)) {
        return BERTH_FAIL(CORRUPT,
                          "'%s': a linear layer of %" PRId64 " inputs and %" PRId64
                          " outputs cannot be built; check the sizes in config.json",
                          linear->prefix == NULL ? "" : linear->prefix, linear->input_size,
                          linear->output_size);
    }
    return BERTH_OK;
}

static berth_value slot_linear_matrix(berth_builder *builder, const berth_linear *linear,
                                      berth_value x, berth_value *out_weight) {
    berth_building *building = behind(builder);
    if (berth_graph_has_failed(building->graph)) {
        return BERTH_VALUE_NONE;
    }
    berth_linear own = READ(berth_linear, linear);
    own.is_matrix = out_weight != NULL;
    berth_value y = BERTH_VALUE_NONE;
    berth_status status = check_linear(&own);
    if (status == BERTH_OK) {
        status = berth_quantization_build(building, &own, x, out_weight, &y);
    }
    stop(building, status);
    return berth_graph_has_failed(building->graph) ? BERTH_VALUE_NONE : y;
}

static berth_value slot_linear(berth_builder *builder, const berth_linear *linear, berth_value x) {
    return slot_linear_matrix(builder, linear, x, NULL);
}

static berth_status check_experts(const berth_experts *experts, const berth_linear stacks[2]) {
    for (int i = 0; i < 2; ++i) {
        BERTH_TRY(check_linear(&stacks[i]));
        if (!is_count(stacks[i].stack_size) || stacks[i].stack_size != stacks[0].stack_size) {
            return BERTH_FAIL(CORRUPT, "'%s': there are no %" PRId64 " experts; check config.json",
                              experts->prefix, stacks[i].stack_size);
        }
    }
    return BERTH_OK;
}

static berth_value slot_experts(berth_builder *builder, const berth_experts *experts) {
    berth_building *building = behind(builder);
    if (berth_graph_has_failed(building->graph)) {
        return BERTH_VALUE_NONE;
    }
    berth_experts own = READ(berth_experts, experts);
    const berth_linear stacks[] = {READ(berth_linear, own.w13), READ(berth_linear, own.w2)};
    own.w13 = &stacks[0];
    own.w2 = &stacks[1];
    berth_value y = BERTH_VALUE_NONE;
    berth_status status = check_experts(&own, stacks);
    if (status == BERTH_OK) {
        status = berth_quantization_experts(building, &own, &y);
    }
    stop(building, status);
    return berth_graph_has_failed(building->graph) ? BERTH_VALUE_NONE : y;
}

static void slot_ignore(berth_builder *builder, const char *text) {
    berth_building *building = behind(builder);
    if (!berth_graph_has_failed(building->graph) && text[0] != '\0') {
        berth_parameters_ignore(building->parameters, text);
    }
}

// ---- texts and failures -------------------------------------------------------------------------

static const char *slot_intern(berth_builder *builder, const char *text, uint64_t length) {
    berth_building *building = behind(builder);
    if (berth_graph_has_failed(building->graph)) {
        return "";
    }
    const char *copy = berth_arena_copy(building->arena, (berth_str){.data = text, .size = length});
    if (copy == NULL) {
        stop(building, berth_arena_exhausted(building->arena, "names of the model"));
        return "";
    }
    return copy;
}

static void slot_fail(berth_builder *builder, berth_status status, const char *text,
                      uint64_t length) {
    berth_building *building = behind(builder);
    const berth_status code = status == BERTH_OK ? BERTH_INTERNAL : status;
    if (!berth_graph_has_failed(building->graph)) {
        const int size = length < TEXT_BYTES ? (int)length : TEXT_BYTES - 1;
        stop_declaring(building, berth_status_fail(code, __FILE__, __LINE__, "%.*s", size, text));
    }
}

static uint64_t slot_has_failed(const berth_builder *builder) {
    return berth_graph_has_failed(behind(builder)->graph);
}

void berth_building_open(berth_building *building, const berth_json *config) {
    building->face = (berth_builder){
        .size = sizeof(berth_builder),
        .host = berth_registry_host(building->registry),
        .config = config,
        .activation_dtype = berth_dtype_name(building->activation),
        .context = building,
        .describe = slot_describe,
        .input = slot_input,
        .parameter = slot_parameter,
        .kv_cache = slot_kv_cache,
        .op = slot_op,
        .layer = slot_layer,
        .linear = slot_linear,
        .slice = slot_slice,
        .reshape = slot_reshape,
        .output = slot_output,
        .type = slot_type,
        .intern = slot_intern,
        .fail = slot_fail,
        .has_failed = slot_has_failed,
        .state = slot_state,
        .ignore = slot_ignore,
        .experts = slot_experts,
        .kv_scale = slot_kv_scale,
        .linear_matrix = slot_linear_matrix,
        .max_model_len = building->config->max_model_len,
    };
}
