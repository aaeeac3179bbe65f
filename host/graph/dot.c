// SPDX-License-Identifier: Apache-2.0
// A graph in the language of Graphviz: ops as boxes, views as plain text, what goes in and out as
// ellipses, states dashed. For people; nothing reads it back.
#include "graph/graph.h"

static void print_label(const char *label, berth_text *text) {
    for (const char *at = label; *at != '\0'; ++at) {
        if (*at == '"' || *at == '\\') {
            berth_text_add_char(text, '\\');
        }
        berth_text_add_char(text, (unsigned char)*at < 0x20 ? ' ' : *at);
    }
}

static void print_root(const berth_graph_value *value, size_t id, berth_text *text) {
    const char *style = value->kind == BERTH_VALUE_STATE ? ", style=dashed" : "";
    berth_text_add_format(text, "  v%zu [shape=ellipse%s, label=\"", id, style);
    print_label(value->name, text);
    berth_text_add_cstr(text, "\\n");
    berth_type_print(&value->type, text);
    berth_text_add_cstr(text, "\"];\n");
}

static void print_node(const berth_graph_node *node, size_t id, berth_text *text) {
    const char *name = node->kind == BERTH_NODE_OP      ? node->op->op.name
                       : node->kind == BERTH_NODE_SLICE ? "slice"
                                                        : "reshape";
    berth_text_add_format(text, "  n%zu [shape=%s, label=\"%s", id,
                          node->kind == BERTH_NODE_OP ? "box" : "plaintext", name);
    if (node->layer[0] != '\0') {
        berth_text_add_cstr(text, "\\n");
        print_label(node->layer, text);
    }
    berth_text_add_cstr(text, "\"];\n");
}

// From whoever makes the value; the edge carries the type unless the value has an ellipse of its
// own.
static void print_source(const berth_graph *graph, berth_value value, berth_text *text) {
    const uint32_t node = graph->values[value].node;
    if (node == BERTH_NO_NODE) {
        berth_text_add_format(text, "  v%u -> ", (unsigned)value);
    } else {
        berth_text_add_format(text, "  n%u -> ", (unsigned)node);
    }
}

static void print_edge(const berth_graph *graph, berth_value value, size_t to, berth_text *text) {
    const berth_graph_value *source = &graph->values[value];
    print_source(graph, value, text);
    berth_text_add_format(text, "n%zu", to);
    if (source->kind == BERTH_VALUE_STATE || source->kind == BERTH_VALUE_MUTATED) {
        berth_text_add_cstr(text, " [style=dashed]");
    } else if (source->node != BERTH_NO_NODE) {
        berth_text_add_cstr(text, " [label=\"");
        berth_type_print(&source->type, text);
        berth_text_add_cstr(text, "\"]");
    }
    berth_text_add_cstr(text, ";\n");
}

static void print_edges(const berth_graph *graph, size_t id, berth_text *text) {
    const berth_graph_node *node = &graph->nodes[id];
    for (size_t i = 0; i < node->input_count; ++i) {
        if (node->inputs[i] != BERTH_VALUE_NONE) {
            print_edge(graph, node->inputs[i], id, text);
        }
    }
    for (size_t i = 0; i < node->state_count; ++i) {
        if (node->states[i] != BERTH_VALUE_NONE) {
            print_edge(graph, node->states[i], id, text);
        }
    }
}

void berth_graph_print_dot(const berth_graph *graph, berth_text *text) {
    berth_text_add_cstr(text, "digraph \"");
    print_label(graph->name, text);
    berth_text_add_cstr(text, "\" {\n");
    for (size_t i = 1; i < graph->value_count; ++i) {
        if (graph->values[i].node == BERTH_NO_NODE) {
            print_root(&graph->values[i], i, text);
        }
    }
    for (size_t i = 0; i < graph->node_count; ++i) {
        print_node(&graph->nodes[i], i, text);
        print_edges(graph, i, text);
    }
    for (size_t i = 0; i < graph->output_count; ++i) {
        berth_text_add_format(text, "  o%zu [shape=ellipse, label=\"%s\"];\n", i,
                              graph->outputs[i].name);
        print_source(graph, graph->outputs[i].value, text);
        berth_text_add_format(text, "o%zu;\n", i);
    }
    berth_text_add_cstr(text, "}\n");
}
