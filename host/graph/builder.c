// SPDX-License-Identifier: Apache-2.0
// Input: calls of model code, layers or the parser. Output: a verified graph. Sticky: the first
// failure is kept with its report and returned by finish; until then callers check nothing.
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "base/memory.h"
#include "graph/rules.h"

#define BLOCK_BYTES (64u << 10)
#define LIMIT_BYTES (256u << 20)
// Above any model, below what 32-bit ids and a person could deal with.
#define MAX_VALUES (1u << 24)

struct berth_graph_builder {
    const berth_registry *registry;
    berth_graph graph; // a view of the arrays below while it grows; its arena is owned
    berth_array(berth_graph_value) values;
    berth_array(berth_graph_node) nodes;
    berth_array(berth_graph_output) outputs;
    berth_map inputs;     // name → value
    berth_map parameters; // name → value
    berth_map states;     // "index layer" → latest version
    berth_status failed;
    berth_status_report report; // of the first failure
};

static const berth_value_type no_type = {.size = sizeof(berth_value_type)};

// ---- failing ------------------------------------------------------------------------------------

// Keeps the first failure of this thread; yields whether there is one.
static bool keep(berth_graph_builder *builder, berth_status status) {
    if (status != BERTH_OK && builder->failed == BERTH_OK) {
        builder->failed = status;
        berth_status_take(&builder->report);
    }
    return status != BERTH_OK;
}

void berth_graph_fail(berth_graph_builder *builder, berth_status status, const char *text) {
    if (builder->failed == BERTH_OK) {
        const berth_status code = status == BERTH_OK ? BERTH_INTERNAL : status;
        (void)keep(builder, berth_status_fail(code, __FILE__, __LINE__, "%s", text));
    }
}

bool berth_graph_has_failed(const berth_graph_builder *builder) {
    return builder->failed != BERTH_OK;
}

// ---- values -------------------------------------------------------------------------------------

static berth_status add_value(berth_graph_builder *builder, berth_graph_value value,
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

static berth_status copy_name(berth_graph_builder *builder, const char *name, const char **out) {
    *out = berth_arena_strdup(builder->graph.arena, name);
    return *out != NULL ? BERTH_OK : berth_arena_exhausted(builder->graph.arena, "graph names");
}

// A value without a node, known under `key`.
static berth_status add_root(berth_graph_builder *builder, berth_map *map, const char *key,
                             berth_graph_value value, berth_value *out_value) {
    value.node = BERTH_NO_NODE;
    BERTH_TRY(copy_name(builder, value.name, &value.name));
    const char *kept = NULL;
    BERTH_TRY(copy_name(builder, key, &kept));
    BERTH_TRY(add_value(builder, value, out_value));
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
    if (builder->failed != BERTH_OK || keep(builder, add_input(builder, name, &value))) {
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
    if (builder->failed != BERTH_OK || keep(builder, add_parameter(builder, name, type, &value))) {
        return BERTH_VALUE_NONE;
    }
    return value;
}

// Why: the index first, since a layer's name may hold any character.
static berth_status state_key(berth_graph_builder *builder, const char *layer, uint64_t index,
                              berth_str *out_key) {
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
    BERTH_TRY(state_key(builder, layer, index, &key));
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
        (void)keep(builder, add_state(builder, layer, index, type));
    }
}

static berth_status check_value(const berth_graph_builder *builder, berth_value value) {
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

// ---- nodes --------------------------------------------------------------------------------------

static berth_status find_op(const berth_graph_builder *builder, const char *name,
                            const berth_op_entry **out_entry) {
    *out_entry = berth_registry_find_op(builder->registry, name);
    if (*out_entry != NULL) {
        return BERTH_OK;
    }
    const size_t count = berth_registry_op_count(builder->registry);
    const char **names = BERTH_ARENA_ARRAY(builder->graph.arena, const char *, 2 * count);
    if (names == NULL) {
        return berth_arena_exhausted(builder->graph.arena, "op names");
    }
    for (size_t i = 0; i < count; ++i) {
        const berth_op *op = &berth_registry_op_at(builder->registry, i)->op;
        names[2 * i] = op->name;
        names[2 * i + 1] = op->class_name;
    }
    const char *nearest = berth_str_nearest(berth_str_from(name), names, 2 * count);
    return nearest != NULL
               ? BERTH_FAIL(NOT_FOUND, "there is no op '%s'; did you mean '%s'?", name, nearest)
               : BERTH_FAIL(NOT_FOUND, "there is no op '%s'; `berth ops list` shows them", name);
}

static berth_status take_inputs(berth_graph_builder *builder, const berth_op *op,
                                const berth_call *call, berth_graph_node *node) {
    if (call->input_count > op->input_count) {
        return BERTH_FAIL(INVALID_ARGUMENT, "op '%s' takes %llu inputs, got %llu", op->name,
                          (unsigned long long)op->input_count,
                          (unsigned long long)call->input_count);
    }
    berth_value *inputs = BERTH_ARENA_ARRAY(builder->graph.arena, berth_value, op->input_count);
    if (inputs == NULL) {
        return berth_arena_exhausted(builder->graph.arena, "graph nodes");
    }
    for (uint64_t i = 0; i < op->input_count; ++i) {
        const berth_value value = i < call->input_count ? call->inputs[i] : BERTH_VALUE_NONE;
        const bool is_optional = (op->inputs[i]->flags & BERTH_ARGUMENT_OPTIONAL) != 0;
        if (value == BERTH_VALUE_NONE && !is_optional) {
            return BERTH_FAIL(INVALID_ARGUMENT, "op '%s' needs the input '%s'", op->name,
                              op->inputs[i]->name);
        }
        if (value != BERTH_VALUE_NONE) {
            BERTH_TRY_NOTE(check_value(builder, value), "input '%s' of op '%s'",
                           op->inputs[i]->name, op->name);
        }
        inputs[i] = value;
    }
    node->inputs = inputs;
    node->input_count = op->input_count;
    return BERTH_OK;
}

static berth_status take_states(berth_graph_builder *builder, const berth_op *op,
                                berth_graph_node *node) {
    berth_value *states = BERTH_ARENA_ARRAY(builder->graph.arena, berth_value, op->state_count);
    if (states == NULL) {
        return berth_arena_exhausted(builder->graph.arena, "graph nodes");
    }
    for (uint64_t i = 0; i < op->state_count; ++i) {
        berth_str key;
        BERTH_TRY(state_key(builder, node->layer, i, &key));
        const uint32_t *found = berth_map_find(&builder->states, key);
        if (found == NULL && (op->states[i]->flags & BERTH_ARGUMENT_OPTIONAL) == 0) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "op '%s' uses the state '%s' of layer '%s', which is not declared; "
                              "declare the layer's cache before the op",
                              op->name, op->states[i]->name, node->layer);
        }
        states[i] = found != NULL ? *found : BERTH_VALUE_NONE;
    }
    node->states = states;
    node->state_count = op->state_count;
    return BERTH_OK;
}

static berth_status add_outputs(berth_graph_builder *builder, berth_graph_node *node,
                                const berth_value_type *types, size_t count) {
    berth_value *outputs = BERTH_ARENA_ARRAY(builder->graph.arena, berth_value, count);
    if (outputs == NULL) {
        return berth_arena_exhausted(builder->graph.arena, "graph nodes");
    }
    for (size_t i = 0; i < count; ++i) {
        const bool is_view = node->kind != BERTH_NODE_OP;
        const berth_graph_value value = {
            .kind = is_view ? BERTH_VALUE_VIEW : BERTH_VALUE_RESULT,
            .type = types[i],
            .node = (uint32_t)builder->nodes.count,
            .alias_of = is_view ? node->inputs[0] : BERTH_VALUE_NONE,
        };
        BERTH_TRY(add_value(builder, value, &outputs[i]));
    }
    node->outputs = outputs;
    node->output_count = count;
    return BERTH_OK;
}

// The next version of each state, found from now on in place of the one before.
static berth_status renew_states(berth_graph_builder *builder, berth_graph_node *node) {
    berth_value *after = BERTH_ARENA_ARRAY(builder->graph.arena, berth_value, node->state_count);
    if (after == NULL) {
        return berth_arena_exhausted(builder->graph.arena, "graph nodes");
    }
    for (size_t i = 0; i < node->state_count; ++i) {
        if (node->states[i] == BERTH_VALUE_NONE) {
            continue;
        }
        berth_graph_value value = builder->values.data[node->states[i]];
        value.kind = BERTH_VALUE_MUTATED;
        value.node = (uint32_t)builder->nodes.count;
        value.alias_of = node->states[i];
        BERTH_TRY(add_value(builder, value, &after[i]));
        berth_str key;
        BERTH_TRY(state_key(builder, value.name, value.state, &key));
        *berth_map_find(&builder->states, key) = after[i];
    }
    node->states_after = after;
    return BERTH_OK;
}

static berth_status add_node(berth_graph_builder *builder, const berth_graph_node *node) {
    BERTH_TRY(berth_array_push(&builder->nodes, *node));
    builder->graph.nodes = builder->nodes.data;
    builder->graph.node_count = builder->nodes.count;
    return BERTH_OK;
}

static berth_status give_outputs(const berth_call *call, const berth_graph_node *node) {
    if (call->output_count > node->output_count) {
        return BERTH_FAIL(INVALID_ARGUMENT, "op '%s' gives %zu outputs here, %llu are wanted",
                          node->op->op.name, node->output_count,
                          (unsigned long long)call->output_count);
    }
    for (uint64_t i = 0; i < call->output_count; ++i) {
        call->outputs[i] = node->outputs[i];
    }
    return BERTH_OK;
}

static berth_status add_op(berth_graph_builder *builder, const berth_call *call,
                           berth_value *out_value) {
    berth_graph_node node = {
        .kind = BERTH_NODE_OP,
        .is_enforced = call->enforce_enable != 0,
    };
    BERTH_TRY(find_op(builder, call->name, &node.op));
    const berth_op *op = &node.op->op;
    BERTH_TRY(copy_name(builder, call->prefix != NULL ? call->prefix : "", &node.layer));
    BERTH_TRY(berth_attributes_complete(op, call, builder->graph.arena, &node.attributes));
    node.attribute_count = op->attribute_count;
    BERTH_TRY(take_inputs(builder, op, call, &node));
    BERTH_TRY(take_states(builder, op, &node));
    berth_inferred inferred;
    BERTH_TRY(berth_node_infer(&builder->graph, &node, berth_registry_host(builder->registry),
                               builder->graph.arena, &inferred));
    BERTH_TRY(add_outputs(builder, &node, inferred.types, inferred.count));
    BERTH_TRY(renew_states(builder, &node));
    BERTH_TRY(add_node(builder, &node));
    BERTH_TRY(give_outputs(call, &node));
    *out_value = inferred.count > 0 ? node.outputs[0] : BERTH_VALUE_NONE;
    return BERTH_OK;
}

// Where an op was to be added, for the report: its layer and the types it was given.
static void note_op(const berth_graph_builder *builder, const berth_call *call) {
    berth_text text;
    berth_text_init(&text, 1024);
    for (uint64_t i = 0; i < call->input_count; ++i) {
        const berth_value value = call->inputs[i];
        const bool is_known = value != BERTH_VALUE_NONE && value < builder->values.count;
        berth_text_add_cstr(&text, i == 0 ? "" : ", ");
        if (is_known) {
            berth_type_print(&builder->values.data[value].type, &text);
        } else {
            berth_text_add_char(&text, '_');
        }
    }
    berth_status_note(__FILE__, __LINE__, "adding %s(%s)%s%s", call->name,
                      text.data == NULL ? "" : text.data,
                      call->prefix != NULL && call->prefix[0] != '\0' ? " of layer " : "",
                      call->prefix != NULL ? call->prefix : "");
    berth_text_deinit(&text);
}

berth_value berth_graph_op(berth_graph_builder *builder, const berth_call *call) {
    // Why: the caller may have been built with another minor of the contract.
    berth_call known = {0};
    memcpy(&known, call, call->size < sizeof(known) ? call->size : sizeof(known));
    berth_value value = BERTH_VALUE_NONE;
    if (builder->failed != BERTH_OK) {
        return BERTH_VALUE_NONE;
    }
    const berth_status status = add_op(builder, &known, &value);
    if (status != BERTH_OK) {
        note_op(builder, &known);
    }
    return keep(builder, status) ? BERTH_VALUE_NONE : value;
}

// ---- views --------------------------------------------------------------------------------------

// `type` is the target of a reshape; a slice replaces it by what it infers.
static berth_status add_view(berth_graph_builder *builder, berth_graph_node node,
                             berth_value source, berth_value_type type, berth_value *out_value) {
    BERTH_TRY(check_value(builder, source));
    const berth_value_type *from = &builder->values.data[source].type;
    if (node.kind == BERTH_NODE_SLICE) {
        BERTH_TRY(berth_slice_type(from, &node, &type));
    } else {
        type.dtype = from->dtype;
        BERTH_TRY_NOTE(berth_type_normalise(&type, &type), "reshape of value %%%u",
                       (unsigned)source);
        BERTH_TRY(berth_reshape_check(from, &type));
    }
    berth_value *input = BERTH_ARENA_NEW(builder->graph.arena, berth_value);
    if (input == NULL) {
        return berth_arena_exhausted(builder->graph.arena, "graph nodes");
    }
    *input = source;
    node.layer = "";
    node.inputs = input;
    node.input_count = 1;
    BERTH_TRY(add_outputs(builder, &node, &type, 1));
    *out_value = node.outputs[0];
    return add_node(builder, &node);
}

berth_value berth_graph_slice(berth_graph_builder *builder, berth_value value, uint64_t dim,
                              int64_t start, int64_t length) {
    const berth_graph_node node = {
        .kind = BERTH_NODE_SLICE,
        .slice_dim = dim,
        .slice_start = start,
        .slice_length = length,
    };
    berth_value view = BERTH_VALUE_NONE;
    if (builder->failed != BERTH_OK ||
        keep(builder, add_view(builder, node, value, no_type, &view))) {
        return BERTH_VALUE_NONE;
    }
    return view;
}

berth_value berth_graph_reshape(berth_graph_builder *builder, berth_value value,
                                const berth_dim *dims, uint64_t ndim) {
    const berth_graph_node node = {.kind = BERTH_NODE_RESHAPE};
    berth_value_type type = {.size = sizeof(type), .ndim = BERTH_MAX_DIMS + 1};
    if (ndim <= BERTH_MAX_DIMS) {
        type.ndim = (uint32_t)ndim;
        memcpy(type.dims, dims, ndim * sizeof(*dims));
    }
    berth_value view = BERTH_VALUE_NONE;
    if (builder->failed != BERTH_OK || keep(builder, add_view(builder, node, value, type, &view))) {
        return BERTH_VALUE_NONE;
    }
    return view;
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
    BERTH_TRY_NOTE(check_value(builder, value), "output '%s'", name);
    berth_graph_output output = {.value = value};
    BERTH_TRY(copy_name(builder, name, &output.name));
    return berth_array_push(&builder->outputs, output);
}

void berth_graph_output_add(berth_graph_builder *builder, const char *name, berth_value value) {
    if (builder->failed == BERTH_OK) {
        (void)keep(builder, add_output(builder, name, value));
    }
}

const berth_value_type *berth_graph_type(const berth_graph_builder *builder, berth_value value) {
    const bool is_known = value != BERTH_VALUE_NONE && value < builder->values.count;
    return is_known && builder->failed == BERTH_OK ? &builder->values.data[value].type : &no_type;
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
        status = copy_name(builder, name, &builder->graph.name);
    }
    berth_value none = BERTH_VALUE_NONE;
    if (status == BERTH_OK) {
        const berth_graph_value unused = {.name = "", .node = BERTH_NO_NODE, .type = no_type};
        status = add_value(builder, unused, &none);
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
