// SPDX-License-Identifier: Apache-2.0
// Input: a pattern and the node that may be its last. Output: the nodes of all of it. There is
// nothing to try out: a value has one producer, so the last node leads to all others.
#include "passes/rewriting.h"

#include <string.h>

static const char *name_of(const berth_graph_node *node) {
    return node->kind == BERTH_NODE_SLICE     ? "slice"
           : node->kind == BERTH_NODE_RESHAPE ? "reshape"
                                              : node->op->op.name;
}

// Where the op has the input; a view has one.
static bool find_input(const berth_graph_node *node, const char *name, berth_value *out_value) {
    if (node->kind != BERTH_NODE_OP) {
        *out_value = node->inputs[0];
        return strcmp(name, "x") == 0;
    }
    for (uint64_t i = 0; i < node->input_count; ++i) {
        if (strcmp(node->op->op.inputs[i]->name, name) == 0) {
            *out_value = node->inputs[i];
            return true;
        }
    }
    return false;
}

// The node that makes the value as that output; whoever was found before must be the same.
static bool follow(const berth_graph *graph, berth_value value, const berth_pass_input *input,
                   uint32_t *node) {
    const uint32_t producer = value == BERTH_VALUE_NONE ? BERTH_NO_NODE : graph->values[value].node;
    if (producer == BERTH_NO_NODE || (*node != BERTH_NO_NODE && *node != producer) ||
        input->output >= graph->nodes[producer].output_count ||
        graph->nodes[producer].outputs[input->output] != value) {
        return false;
    }
    *node = producer;
    return true;
}

static bool is_free(const berth_rewriting *in, const berth_found *found, uint64_t index) {
    const uint32_t node = found->nodes[index];
    for (uint64_t i = index + 1; i < found->pattern->node_count; ++i) {
        if (found->nodes[i] == node) {
            return false;
        }
    }
    return in->taken_by[node] == 0 && !in->graph->nodes[node].is_enforced;
}

bool berth_pass_find(const berth_rewriting *in, const berth_pass_pattern *pattern, uint32_t root,
                     berth_found *out) {
    out->pattern = pattern;
    for (uint64_t i = 0; i < BERTH_PASS_NODES; ++i) {
        out->nodes[i] = BERTH_NO_NODE;
    }
    out->nodes[pattern->node_count - 1] = root;
    // Every node is an input of a later one, so all of those have been found when it is its turn.
    for (uint64_t i = pattern->node_count; i-- > 0;) {
        const berth_pass_node *wanted = pattern->nodes[i];
        const berth_graph_node *node = &in->graph->nodes[out->nodes[i]];
        if (strcmp(name_of(node), wanted->op) != 0 || !is_free(in, out, i)) {
            return false;
        }
        for (uint64_t k = 0; k < wanted->input_count; ++k) {
            const berth_pass_input *input = wanted->inputs[k];
            berth_value value = BERTH_VALUE_NONE;
            if (!find_input(node, input->name, &value) ||
                !follow(in->graph, value, input, &out->nodes[input->node])) {
                return false;
            }
        }
    }
    return true;
}
