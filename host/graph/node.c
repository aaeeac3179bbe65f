// SPDX-License-Identifier: Apache-2.0
// Input: one use of an op, a slice or a reshape. Output: a node at the end of the graph, or the
// refusal with op, argument and rule.
#include "graph/builder.h"

#include <string.h>

// ---- ops ----------------------------------------------------------------------------------------

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
            BERTH_TRY_NOTE(berth_builder_check_value(builder, value), "input '%s' of op '%s'",
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
        BERTH_TRY(berth_builder_state_key(builder, node->layer, i, &key));
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
        BERTH_TRY(berth_builder_add_value(builder, value, &outputs[i]));
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
        BERTH_TRY(berth_builder_add_value(builder, value, &after[i]));
        berth_str key;
        BERTH_TRY(berth_builder_state_key(builder, value.name, value.state, &key));
        *berth_map_find(&builder->states, key) = after[i];
    }
    node->states_after = after;
    return BERTH_OK;
}

static berth_status add_node(berth_graph_builder *builder, const berth_graph_node *node) {
    BERTH_TRY(berth_array_push(&builder->nodes, *node));
    builder->nodes.data[builder->nodes.count - 1].made_by = builder->made_by;
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
    BERTH_TRY(
        berth_builder_copy_name(builder, call->prefix != NULL ? call->prefix : "", &node.layer));
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
    return berth_builder_keep(builder, status) ? BERTH_VALUE_NONE : value;
}

berth_value berth_graph_rows(berth_graph_builder *builder, berth_value value, const char *input) {
    const berth_value inputs[] = {value, berth_graph_input(builder, input)};
    const berth_call call = {
        .size = sizeof call,
        .name = "select_rows",
        .inputs = inputs,
        .input_count = BERTH_COUNT(inputs),
    };
    return berth_graph_op(builder, &call);
}

// ---- views --------------------------------------------------------------------------------------

// `type` is the target of a reshape; a slice replaces it by what it infers.
static berth_status add_view(berth_graph_builder *builder, berth_graph_node node,
                             berth_value source, berth_value_type type, berth_value *out_value) {
    BERTH_TRY(berth_builder_check_value(builder, source));
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
        berth_builder_keep(builder, add_view(builder, node, value, berth_no_type, &view))) {
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
    if (builder->failed != BERTH_OK ||
        berth_builder_keep(builder, add_view(builder, node, value, type, &view))) {
        return BERTH_VALUE_NONE;
    }
    return view;
}
