// SPDX-License-Identifier: Apache-2.0
// A graph as text. The grammar, whose inverse is parse.c; blanks and newlines separate, nothing
// else:
//
//   graph   = 'graph' string '{' line* '}'
//   line    = value '=' 'input' name ':' type
//           | value '=' 'parameter' string ':' type
//           | value '=' 'state' string number ':' type
//           | value '=' 'slice' value 'dim' number 'from' number 'length' number ':' type
//           | value '=' 'reshape' value ':' type
//           | results '=' name '(' inputs [';' inputs] ')' ['{' pairs '}'] ['@' string]
//           ['enforced']
//             [':' types]
//           | 'output' name '=' value
//   value   = '%' number             results = result {',' result}; result = value ["'"]
//   inputs  = [input {',' input}]    input   = value | '_' (absent)
//   pairs   = name '=' constant {',' name '=' constant}
//   constant = number | real | 'true' | 'false' | string | '[' [constant {',' constant}] ']'
//   type    = dtype '[' [dim {',' dim}] ']';  types = type {',' type}
//   dim     = affine | 'ceil(' (affine | '(' affine ')') '/' number ')'
//   affine  = number | [number '*'] 's0' or 's1' [('+' | '-') number]
//   string  = '"' … '"' with \" \\ and \xHH for control characters
//
// Results are those of the op, then, primed, the states after it; a primed one has its state's
// type. Absent trailing inputs are left out. Values are numbered in order.
#include "graph/graph.h"

static void print_string(const char *string, berth_text *text) {
    berth_text_add_char(text, '"');
    for (const char *at = string; *at != '\0'; ++at) {
        const unsigned char byte = (unsigned char)*at;
        if (byte < 0x20 || byte == 0x7f) {
            berth_text_add_format(text, "\\x%02x", byte);
            continue;
        }
        if (byte == '"' || byte == '\\') {
            berth_text_add_char(text, '\\');
        }
        berth_text_add_char(text, *at);
    }
    berth_text_add_char(text, '"');
}

static void print_value(berth_value value, berth_text *text) {
    if (value == BERTH_VALUE_NONE) {
        berth_text_add_char(text, '_');
    } else {
        berth_text_add_format(text, "%%%u", (unsigned)value);
    }
}

static void print_values(const berth_value *values, size_t count, berth_text *text) {
    while (count > 0 && values[count - 1] == BERTH_VALUE_NONE) {
        --count;
    }
    for (size_t i = 0; i < count; ++i) {
        berth_text_add_cstr(text, i == 0 ? "" : ", ");
        print_value(values[i], text);
    }
}

static void print_list(const berth_attribute *attribute, berth_text *text) {
    berth_text_add_char(text, '[');
    for (uint64_t i = 0; i < attribute->count; ++i) {
        berth_text_add_cstr(text, i == 0 ? "" : ", ");
        if (attribute->kind == BERTH_ATTRIBUTE_I64S) {
            berth_text_add_format(text, "%lld", (long long)attribute->i64s[i]);
        } else {
            berth_text_add_f64(text, attribute->f64s[i]);
        }
    }
    berth_text_add_char(text, ']');
}

static void print_constant(const berth_attribute *attribute, berth_text *text) {
    switch (attribute->kind) {
    case BERTH_ATTRIBUTE_I64:
        berth_text_add_format(text, "%lld", (long long)attribute->i64);
        break;
    case BERTH_ATTRIBUTE_F64:
        berth_text_add_f64(text, attribute->f64);
        break;
    case BERTH_ATTRIBUTE_BOOL:
        berth_text_add_cstr(text, attribute->i64 != 0 ? "true" : "false");
        break;
    case BERTH_ATTRIBUTE_STR:
        print_string(attribute->str, text);
        break;
    default:
        print_list(attribute, text);
        break;
    }
}

static void print_attributes(const berth_graph_node *node, berth_text *text) {
    const char *before = " {";
    for (size_t i = 0; i < node->attribute_count; ++i) {
        const berth_attribute *attribute = node->attributes[i];
        if (attribute->kind == BERTH_ATTRIBUTE_NONE) {
            continue;
        }
        berth_text_add_format(text, "%s%s = ", before, attribute->name);
        print_constant(attribute, text);
        before = ", ";
    }
    berth_text_add_cstr(text, before[0] == ',' ? "}" : "");
}

static void print_results(const berth_graph_node *node, berth_text *text) {
    const char *before = "  ";
    for (size_t i = 0; i < node->output_count; ++i) {
        berth_text_add_format(text, "%s%%%u", before, (unsigned)node->outputs[i]);
        before = ", ";
    }
    for (size_t i = 0; i < node->state_count; ++i) {
        if (node->states_after[i] != BERTH_VALUE_NONE) {
            berth_text_add_format(text, "%s%%%u'", before, (unsigned)node->states_after[i]);
            before = ", ";
        }
    }
}

static void print_op(const berth_graph *graph, const berth_graph_node *node, berth_text *text) {
    print_results(node, text);
    berth_text_add_format(text, " = %s(", node->op->op.name);
    print_values(node->inputs, node->input_count, text);
    if (node->state_count > 0) {
        berth_text_add_cstr(text, "; ");
        print_values(node->states, node->state_count, text);
    }
    berth_text_add_char(text, ')');
    print_attributes(node, text);
    if (node->layer[0] != '\0') {
        berth_text_add_cstr(text, " @");
        print_string(node->layer, text);
    }
    berth_text_add_cstr(text, node->is_enforced ? " enforced" : "");
    for (size_t i = 0; i < node->output_count; ++i) {
        berth_text_add_cstr(text, i == 0 ? " : " : ", ");
        berth_type_print(&graph->values[node->outputs[i]].type, text);
    }
}

static void print_view(const berth_graph *graph, const berth_graph_node *node, berth_text *text) {
    berth_text_add_format(text, "  %%%u = ", (unsigned)node->outputs[0]);
    if (node->kind == BERTH_NODE_SLICE) {
        berth_text_add_format(text, "slice %%%u dim %llu from %lld length %lld : ",
                              (unsigned)node->inputs[0], (unsigned long long)node->slice_dim,
                              (long long)node->slice_start, (long long)node->slice_length);
    } else {
        berth_text_add_format(text, "reshape %%%u : ", (unsigned)node->inputs[0]);
    }
    berth_type_print(&graph->values[node->outputs[0]].type, text);
}

static void print_root(const berth_graph_value *value, berth_value id, berth_text *text) {
    berth_text_add_format(text, "  %%%u = ", (unsigned)id);
    if (value->kind == BERTH_VALUE_INPUT) {
        berth_text_add_format(text, "input %s", value->name);
    } else {
        berth_text_add_cstr(text, value->kind == BERTH_VALUE_STATE ? "state " : "parameter ");
        print_string(value->name, text);
    }
    if (value->kind == BERTH_VALUE_STATE) {
        berth_text_add_format(text, " %llu", (unsigned long long)value->state);
    }
    berth_text_add_cstr(text, " : ");
    berth_type_print(&value->type, text);
}

void berth_graph_print(const berth_graph *graph, berth_text *text) {
    berth_text_add_cstr(text, "graph ");
    print_string(graph->name, text);
    berth_text_add_cstr(text, " {\n");
    uint32_t printed = BERTH_NO_NODE;
    for (size_t i = 1; i < graph->value_count; ++i) {
        const berth_graph_value *value = &graph->values[i];
        if (value->node == BERTH_NO_NODE) {
            print_root(value, (berth_value)i, text);
        } else if (value->node == printed) {
            continue; // another result of the node just printed
        } else if (graph->nodes[value->node].kind == BERTH_NODE_OP) {
            print_op(graph, &graph->nodes[value->node], text);
        } else {
            print_view(graph, &graph->nodes[value->node], text);
        }
        printed = value->node;
        berth_text_add_char(text, '\n');
    }
    for (size_t i = 0; i < graph->output_count; ++i) {
        berth_text_add_format(text, "  output %s = %%%u\n", graph->outputs[i].name,
                              (unsigned)graph->outputs[i].value);
    }
    berth_text_add_cstr(text, "}\n");
}
