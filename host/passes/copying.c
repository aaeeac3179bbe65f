// SPDX-License-Identifier: Apache-2.0
// Input: a value or a node of a graph. Output: the same in a graph that is being built, so that
// types are inferred, states threaded and everything verified anew.
#include "passes/copying.h"

#define MAX_ATTRIBUTES 64

// ---- values and nodes ---------------------------------------------------------------------------

void berth_copy_root(const berth_copying *in, berth_value value) {
    const berth_graph_value *root = &in->from->values[value];
    if (in->map[value] != BERTH_VALUE_NONE) {
        return;
    }
    if (root->kind == BERTH_VALUE_INPUT) {
        in->map[value] = berth_graph_input(in->to, root->name);
    } else if (root->kind == BERTH_VALUE_PARAMETER) {
        in->map[value] = berth_graph_parameter(in->to, root->name, &root->type);
    } else {
        berth_graph_state(in->to, root->name, root->state, &root->type);
        in->map[value] = (berth_value)(berth_graph_peek(in->to)->value_count - 1);
    }
}

berth_value berth_moved(const berth_copying *in, berth_value value) {
    while (value < in->instead_count && in->instead[value] != BERTH_VALUE_NONE) {
        value = in->instead[value];
    }
    if (value != BERTH_VALUE_NONE && in->from->values[value].node == BERTH_NO_NODE) {
        berth_copy_root(in, value);
    }
    return value == BERTH_VALUE_NONE ? value : in->map[value];
}

static void copy_op(const berth_copying *in, const berth_graph_node *node) {
    const berth_attribute *attributes[MAX_ATTRIBUTES];
    berth_value inputs[BERTH_MAX_INPUTS];
    uint64_t count = 0;
    for (size_t i = 0; i < node->attribute_count && count < MAX_ATTRIBUTES; ++i) {
        if (node->attributes[i]->kind != BERTH_ATTRIBUTE_NONE) {
            attributes[count++] = node->attributes[i];
        }
    }
    for (size_t i = 0; i < node->input_count; ++i) {
        inputs[i] = berth_moved(in, node->inputs[i]);
    }
    (void)berth_graph_op(in->to, &(berth_call){
                                     .size = sizeof(berth_call),
                                     .name = node->op->op.name,
                                     .prefix = node->layer,
                                     .inputs = inputs,
                                     .input_count = node->input_count,
                                     .attributes = attributes,
                                     .attribute_count = count,
                                     .enforce_enable = node->is_enforced,
                                 });
}

// Where the first dimension stays, it is that of the value as it was moved.
static void copy_reshape(const berth_copying *in, const berth_graph_node *node) {
    const berth_value_type *from = &in->from->values[node->inputs[0]].type;
    const berth_value x = berth_moved(in, node->inputs[0]);
    berth_value_type type = in->from->values[node->outputs[0]].type;
    if (from->ndim > 0 && type.ndim > 0 && berth_dim_equal(from->dims[0], type.dims[0])) {
        type.dims[0] = berth_graph_type(in->to, x)->dims[0];
    }
    (void)berth_graph_reshape(in->to, x, type.dims, type.ndim);
}

void berth_copy_node(const berth_copying *in, const berth_graph_node *node, const char *made_by) {
    berth_graph_made_by(in->to, made_by);
    if (node->kind == BERTH_NODE_SLICE) {
        (void)berth_graph_slice(in->to, berth_moved(in, node->inputs[0]), node->slice_dim,
                                node->slice_start, node->slice_length);
    } else if (node->kind == BERTH_NODE_RESHAPE) {
        copy_reshape(in, node);
    } else {
        copy_op(in, node);
    }
    if (berth_graph_has_failed(in->to)) {
        return;
    }
    const berth_graph *made = berth_graph_peek(in->to);
    const berth_graph_node *copy = &made->nodes[made->node_count - 1];
    for (size_t i = 0; i < node->output_count && i < copy->output_count; ++i) {
        in->map[node->outputs[i]] = copy->outputs[i];
    }
}

void berth_copy_outputs(const berth_copying *in, const berth_graph *graph) {
    for (size_t i = 0; i < graph->output_count; ++i) {
        berth_graph_output_add(in->to, graph->outputs[i].name,
                               berth_moved(in, graph->outputs[i].value));
    }
}
