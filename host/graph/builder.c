// SPDX-License-Identifier: Apache-2.0
// Input: calls of model code, layers or the parser (nodes: node.c). Output: a verified graph.
// Sticky: the first failure is kept with its report and returned by finish; until then callers
// check nothing.
#include "graph/builder.h"

#include <string.h>

#include "base/memory.h"

#define BLOCK_BYTES (64u << 10)
#define LIMIT_BYTES (256u << 20)
// Above any model, below what 32-bit ids and a person could deal with.
#define MAX_VALUES (1u << 24)

const berth_value_type berth_no_type = {.size = sizeof(berth_value_type)};

// ---- failing ------------------------------------------------------------------------------------

bool berth_builder_keep(berth_graph_builder *builder, berth_status status) {
    if (status != BERTH_OK && builder->failed == BERTH_OK) {
        builder->failed = status;
        berth_status_take(&builder->report);
    }
    return status != BERTH_OK;
}

void berth_graph_fail(berth_graph_builder *builder, berth_status status, const char *text) {
    if (builder->failed == BERTH_OK) {
        const berth_status code = status == BERTH_OK ? BERTH_INTERNAL : status;
        (void)berth_builder_keep(builder, berth_status_fail(code, __FILE__, __LINE__, "%s", text));
    }
}

bool berth_graph_has_failed(const berth_graph_builder *builder) {
    return builder->failed != BERTH_OK;
}

// ---- values -------------------------------------------------------------------------------------

berth_status berth_builder_add_value(berth_graph_builder *builder, berth_graph_value value,
                                     berth_value *out_value) {
    if (builder->values.count >= MAX_VALUES) {
        return BERTH_FAIL(OUT_OF_MEMORY, "a graph of more than %u values", MAX_VALUES);
    }
    BERTH_TRY(berth_array_push(&builder->values, value));
    builder->graph.values = builder->values.data;
    builder->graph.value_count = builder->values.count;
    *out_value = (berth_value)(builder->values.count - 1);
    return BERTH_OK;
}

berth_status berth_builder_copy_name(berth_graph_builder *builder, const char *name,
                                     const char **out) {
    *out = berth_arena_strdup(builder->graph.arena, name);
    return *out != NULL ? BERTH_OK : berth_arena_exhausted(builder->graph.arena, "graph names");
}

// A value without a node, known under `key`.
static berth_status add_root(berth_graph_builder *builder, berth_map *map, const char *key,
                             berth_graph_value value, berth_value *out_value) {
    value.node = BERTH_NO_NODE;
    BERTH_TRY(berth_builder_copy_name(builder, value.name, &value.name));
    const char *kept = NULL;
    BERTH_TRY(berth_builder_copy_name(builder, key, &kept));
    BERTH_TRY(berth_builder_add_value(builder, value, out_value));
    return berth_map_add(map, berth_str_from(kept), *out_value);
}

static berth_status add_input(berth_graph_builder *builder, const char *name,
                              berth_value *out_value) {
    const uint32_t *found = berth_map_find(&builder->inputs, berth_str_from(name));
    if (found != NULL) {
        *out_value = *found;
        return BERTH_OK;
    }
    berth_graph_value value = {.kind = BERTH_VALUE_INPUT, .name = name};
    BERTH_TRY(berth_input_type(name, &value.type));
    return add_root(builder, &builder->inputs, name, value, out_value);
}

berth_value berth_graph_input(berth_graph_builder *builder, const char *name) {
    berth_value value = BERTH_VALUE_NONE;
    if (builder->failed != BERTH_OK ||
        berth_builder_keep(builder, add_input(builder, name, &value))) {
        return BERTH_VALUE_NONE;
    }
    return value;
}

// The type of a weight or a state: memory of a fixed size.
static berth_status check_fixed(const char *what, const char *name, const berth_value_type *type,
                                berth_value_type *out_type) {
    BERTH_TRY_NOTE(berth_type_normalise(type, out_type), "%s '%s'", what, name);
    char text[BERTH_TYPE_TEXT_BYTES];
    for (uint32_t i = 0; i < out_type->ndim; ++i) {
        if (!berth_dim_is_const(out_type->dims[i])) {
            return BERTH_FAIL(INVALID_ARGUMENT, "%s '%s' is %s: its dimensions must be constant",
                              what, name, berth_type_text(out_type, text));
        }
    }
    if (berth_type_elements(out_type, 0, 0) < 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s '%s' is %s: more elements than can be counted",
                          what, name, berth_type_text(out_type, text));
    }
    return BERTH_OK;
}

static berth_status add_parameter(berth_graph_builder *builder, const char *name,
                                  const berth_value_type *type, berth_value *out_value) {
    berth_graph_value value = {.kind = BERTH_VALUE_PARAMETER, .name = name};
    BERTH_TRY(check_fixed("parameter", name, type, &value.type));
    const uint32_t *found = berth_map_find(&builder->parameters, berth_str_from(name));
    if (found == NULL) {
        return add_root(builder, &builder->parameters, name, value, out_value);
    }
    *out_value = *found;
    const berth_value_type *before = &builder->values.data[*found].type;
    if (!berth_type_equal(before, &value.type)) {
        char a[BERTH_TYPE_TEXT_BYTES];
        char b[BERTH_TYPE_TEXT_BYTES];
        return BERTH_FAIL(INVALID_ARGUMENT, "parameter '%s' is declared as %s and again as %s",
                          name, berth_type_text(before, a), berth_type_text(&value.type, b));
    }
    return BERTH_OK;
}

berth_value berth_graph_parameter(berth_graph_builder *builder, const char *name,
                                  const berth_value_type *type) {
    berth_value value = BERTH_VALUE_NONE;
    if (builder->failed != BERTH_OK ||
        berth_builder_keep(builder, add_parameter(builder, name, type, &value))) {
        return BERTH_VALUE_NONE;
    }
    return value;
}

// Why: the index first, since a layer's name may hold any character.
berth_status berth_builder_state_key(berth_graph_builder *builder, const char *layer,
                                     uint64_t index, berth_str *out_key) {
    const char *key =
        berth_arena_printf(builder->graph.arena, "%llu %s", (unsigned long long)index, layer);
    *out_key = berth_str_from(key);
    return key != NULL ? BERTH_OK : berth_arena_exhausted(builder->graph.arena, "graph names");
}

static berth_status add_state(berth_graph_builder *builder, const char *layer, uint64_t index,
                              const berth_value_type *type) {
    berth_graph_value value = {.kind = BERTH_VALUE_STATE, .name = layer, .state = index};
    BERTH_TRY(check_fixed("state of layer", layer, type, &value.type));
    berth_str key;
    BERTH_TRY(berth_builder_state_key(builder, layer, index, &key));
    if (berth_map_find(&builder->states, key) != NULL) {
        return BERTH_FAIL(ALREADY_EXISTS, "state %llu of layer '%s' is declared twice",
                          (unsigned long long)index, layer);
    }
    berth_value added = BERTH_VALUE_NONE;
    return add_root(builder, &builder->states, key.data, value, &added);
}

void berth_graph_state(berth_graph_builder *builder, const char *layer, uint64_t index,
                       const berth_value_type *type) {
    if (builder->failed == BERTH_OK) {
        (void)berth_builder_keep(builder, add_state(builder, layer, index, type));
    }
}

berth_status berth_builder_check_value(const berth_graph_builder *builder, berth_value value) {
    if (value == BERTH_VALUE_NONE || value >= builder->values.count) {
        return BERTH_FAIL(INVALID_ARGUMENT, "there is no value %%%u", (unsigned)value);
    }
    const berth_value_kind kind = builder->values.data[value].kind;
    if (kind == BERTH_VALUE_STATE || kind == BERTH_VALUE_MUTATED) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "value %%%u is a state, which only the node of its layer may use",
                          (unsigned)value);
    }
    return BERTH_OK;
}

// ---- outputs, life ------------------------------------------------------------------------------

// A name that the text form can hold without quotes.
static bool is_plain(const char *name) {
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return name[0] != '\0' && name[strspn(name, plain)] == '\0';
}

static berth_status add_output(berth_graph_builder *builder, const char *name, berth_value value) {
    if (!is_plain(name)) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "the output '%s': a name has letters, digits and '_' only", name);
    }
    for (size_t i = 0; i < builder->outputs.count; ++i) {
        if (strcmp(builder->outputs.data[i].name, name) == 0) {
            return BERTH_FAIL(ALREADY_EXISTS, "the output '%s' is declared twice", name);
        }
    }
    BERTH_TRY_NOTE(berth_builder_check_value(builder, value), "output '%s'", name);
    berth_graph_output output = {.value = value};
    BERTH_TRY(berth_builder_copy_name(builder, name, &output.name));
    return berth_array_push(&builder->outputs, output);
}

void berth_graph_output_add(berth_graph_builder *builder, const char *name, berth_value value) {
    if (builder->failed == BERTH_OK) {
        (void)berth_builder_keep(builder, add_output(builder, name, value));
    }
}

void berth_graph_made_by(berth_graph_builder *builder, const char *pass) {
    builder->made_by = NULL;
    if (pass != NULL && builder->failed == BERTH_OK) {
        (void)berth_builder_keep(builder,
                                 berth_builder_copy_name(builder, pass, &builder->made_by));
    }
}

const berth_value_type *berth_graph_type(const berth_graph_builder *builder, berth_value value) {
    const bool is_known = value != BERTH_VALUE_NONE && value < builder->values.count;
    return is_known && builder->failed == BERTH_OK ? &builder->values.data[value].type
                                                   : &berth_no_type;
}

const berth_graph *berth_graph_peek(const berth_graph_builder *builder) {
    return &builder->graph;
}

static void destroy_builder(berth_graph_builder *builder) {
    berth_array_free(&builder->values);
    berth_array_free(&builder->nodes);
    berth_array_free(&builder->outputs);
    berth_map_deinit(&builder->inputs);
    berth_map_deinit(&builder->parameters);
    berth_map_deinit(&builder->states);
    berth_arena_destroy(builder->graph.arena);
    berth_free(builder);
}

berth_status berth_graph_begin(const berth_registry *registry, const char *name,
                               berth_graph_builder **out_builder) {
    berth_graph_builder *builder = berth_alloc(sizeof(*builder));
    if (builder == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a graph builder");
    }
    builder->registry = registry;
    berth_status status = berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &builder->graph.arena);
    if (status == BERTH_OK) {
        status = berth_builder_copy_name(builder, name, &builder->graph.name);
    }
    berth_value none = BERTH_VALUE_NONE;
    if (status == BERTH_OK) {
        const berth_graph_value unused = {.name = "", .node = BERTH_NO_NODE, .type = berth_no_type};
        status = berth_builder_add_value(builder, unused, &none);
    }
    if (status != BERTH_OK) {
        destroy_builder(builder);
        return status;
    }
    *out_builder = builder;
    return BERTH_OK;
}

static void *copy_array(berth_arena *arena, const void *data, size_t count, size_t size) {
    void *copy = berth_arena_array(arena, count, size);
    if (copy != NULL && count > 0) {
        memcpy(copy, data, count * size);
    }
    return copy;
}

// The graph with arrays of its own, in its arena, where the struct itself stands too.
static berth_status hand_over(const berth_graph_builder *builder, berth_graph **out_graph) {
    berth_arena *arena = builder->graph.arena;
    berth_graph *graph = BERTH_ARENA_NEW(arena, berth_graph);
    void *values = copy_array(arena, builder->values.data, builder->values.count,
                              sizeof(*builder->values.data));
    void *nodes =
        copy_array(arena, builder->nodes.data, builder->nodes.count, sizeof(*builder->nodes.data));
    void *outputs = copy_array(arena, builder->outputs.data, builder->outputs.count,
                               sizeof(*builder->outputs.data));
    if (graph == NULL || values == NULL || nodes == NULL || outputs == NULL) {
        return berth_arena_exhausted(arena, "the graph");
    }
    *graph = builder->graph;
    graph->values = values;
    graph->nodes = nodes;
    graph->outputs = outputs;
    graph->output_count = builder->outputs.count;
    BERTH_TRY(berth_graph_verify(graph, builder->registry));
    *out_graph = graph;
    return BERTH_OK;
}

berth_status berth_graph_finish(berth_graph_builder *builder, berth_graph **out_graph) {
    berth_status status = builder->failed;
    if (status == BERTH_OK) {
        status = hand_over(builder, out_graph);
    } else {
        (void)berth_status_restore(&builder->report);
    }
    if (status == BERTH_OK) {
        builder->graph.arena = NULL;
    }
    destroy_builder(builder);
    return status;
}

void berth_graph_destroy(berth_graph *graph) {
    if (graph != NULL) {
        berth_arena_destroy(graph->arena);
    }
}
