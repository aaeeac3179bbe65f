// SPDX-License-Identifier: Apache-2.0
// Input: a finished graph. Output: OK, or INTERNAL naming the node that breaks a rule. The builder
// cannot make such a graph, so a failure is a defect of whoever changed it afterwards; it is cheap
// enough to run after every change.
#include <string.h>

#include "graph/rules.h"

#define BLOCK_BYTES (16u << 10)
#define LIMIT_BYTES (64u << 20)

typedef struct verifier {
    const berth_graph *graph;
    const berth_registry *registry;
    berth_arena *kept;    // for the whole check
    berth_arena *scratch; // for one node
    uint8_t *is_spent;    // per value: a state that has a later version
    berth_value next;     // results so far are below it
} verifier;

// Nodes are named by position and op; views have none.
#define BROKEN(checker, node, ...) (note_node(checker, node, BERTH_FAIL(INTERNAL, __VA_ARGS__)))

static berth_status note_node(const verifier *checker, const berth_graph_node *node,
                              berth_status status) {
    const char *name = node->kind == BERTH_NODE_SLICE     ? "slice"
                       : node->kind == BERTH_NODE_RESHAPE ? "reshape"
                       : node->op != NULL                 ? node->op->op.name
                                                          : "op";
    berth_status_note(__FILE__, __LINE__, "verifying node %zu (%s) of graph '%s'",
                      (size_t)(node - checker->graph->nodes), name, checker->graph->name);
    return status;
}

static bool is_state(const berth_graph_value *value) {
    return value->kind == BERTH_VALUE_STATE || value->kind == BERTH_VALUE_MUTATED;
}

// ---- operands -----------------------------------------------------------------------------------

// An input exists, was made before the node and is no state.
static berth_status check_input(const verifier *checker, const berth_graph_node *node,
                                berth_value value) {
    if (value >= checker->graph->value_count || value >= checker->next) {
        return BROKEN(checker, node, "input %%%u is made after its use", (unsigned)value);
    }
    if (is_state(&checker->graph->values[value])) {
        return BROKEN(checker, node, "input %%%u is a state", (unsigned)value);
    }
    return BERTH_OK;
}

static berth_status check_inputs(const verifier *checker, const berth_graph_node *node) {
    const berth_op *op = &node->op->op;
    if (node->input_count != op->input_count) {
        return BROKEN(checker, node, "%zu inputs, the op has %llu", node->input_count,
                      (unsigned long long)op->input_count);
    }
    for (size_t i = 0; i < node->input_count; ++i) {
        const bool is_optional = (op->inputs[i]->flags & BERTH_ARGUMENT_OPTIONAL) != 0;
        if (node->inputs[i] != BERTH_VALUE_NONE) {
            BERTH_TRY(check_input(checker, node, node->inputs[i]));
        } else if (!is_optional) {
            return BROKEN(checker, node, "the input '%s' is absent", op->inputs[i]->name);
        }
    }
    return BERTH_OK;
}

static berth_status check_attributes(const verifier *checker, const berth_graph_node *node) {
    const berth_op *op = &node->op->op;
    if (node->attribute_count != op->attribute_count) {
        return BROKEN(checker, node, "%zu attributes, the op has %llu", node->attribute_count,
                      (unsigned long long)op->attribute_count);
    }
    for (size_t i = 0; i < node->attribute_count; ++i) {
        const berth_op_attribute *declared = op->attributes[i];
        const berth_attribute *given = node->attributes[i];
        const bool may_be_absent = declared->is_required == 0 && declared->default_value == NULL;
        const bool has_kind =
            given->kind == declared->kind || (given->kind == BERTH_ATTRIBUTE_NONE && may_be_absent);
        if (strcmp(given->name, declared->name) != 0 || !has_kind) {
            return BROKEN(checker, node, "attribute %zu is not the op's '%s'", i, declared->name);
        }
    }
    return BERTH_OK;
}

// One state: the latest version of what the layer declared, renewed by the node.
static berth_status check_state(verifier *checker, const berth_graph_node *node, size_t index) {
    const berth_graph *graph = checker->graph;
    const berth_value before = node->states[index];
    const berth_value after = node->states_after[index];
    if (before == BERTH_VALUE_NONE && after == BERTH_VALUE_NONE) {
        return (node->op->op.states[index]->flags & BERTH_ARGUMENT_OPTIONAL) != 0
                   ? BERTH_OK
                   : BROKEN(checker, node, "state %zu is absent", index);
    }
    if (before == BERTH_VALUE_NONE || before >= checker->next || after >= graph->value_count ||
        !is_state(&graph->values[before]) || checker->is_spent[before]) {
        return BROKEN(checker, node, "state %zu is not the latest version of a state", index);
    }
    const berth_graph_value *old = &graph->values[before];
    const berth_graph_value *renewed = &graph->values[after];
    if (strcmp(old->name, node->layer) != 0 || old->state != index) {
        return BROKEN(checker, node, "state %zu is that of layer '%s'", index, old->name);
    }
    if (renewed->kind != BERTH_VALUE_MUTATED || renewed->alias_of != before ||
        !berth_type_equal(&renewed->type, &old->type)) {
        return BROKEN(checker, node, "state %zu is not renewed as itself", index);
    }
    checker->is_spent[before] = 1;
    return BERTH_OK;
}

// ---- results ------------------------------------------------------------------------------------

// A result follows all that was made before and knows its node.
static berth_status check_result(verifier *checker, const berth_graph_node *node, berth_value value,
                                 berth_value_kind kind) {
    const berth_graph *graph = checker->graph;
    if (value < checker->next || value >= graph->value_count) {
        return BROKEN(checker, node, "result %%%u is out of order", (unsigned)value);
    }
    if (graph->values[value].kind != kind ||
        graph->values[value].node != (uint32_t)(node - graph->nodes)) {
        return BROKEN(checker, node, "result %%%u is another node's", (unsigned)value);
    }
    checker->next = value + 1;
    return BERTH_OK;
}

static berth_status check_results(verifier *checker, const berth_graph_node *node,
                                  berth_value_kind kind) {
    for (size_t i = 0; i < node->output_count; ++i) {
        BERTH_TRY(check_result(checker, node, node->outputs[i], kind));
    }
    for (size_t i = 0; i < node->state_count; ++i) {
        if (node->states_after[i] != BERTH_VALUE_NONE) {
            BERTH_TRY(check_result(checker, node, node->states_after[i], BERTH_VALUE_MUTATED));
        }
    }
    return BERTH_OK;
}

static berth_status check_types(verifier *checker, const berth_graph_node *node) {
    berth_graph_node bare = *node;
    bare.output_count = 0;
    berth_inferred inferred;
    berth_arena_reset(checker->scratch);
    const berth_status status = berth_node_infer(
        checker->graph, &bare, berth_registry_host(checker->registry), checker->scratch, &inferred);
    if (status != BERTH_OK) {
        return BROKEN(checker, node, "%s", berth_status_message());
    }
    if (inferred.count != node->output_count) {
        return BROKEN(checker, node, "%zu outputs, the op gives %zu", node->output_count,
                      inferred.count);
    }
    for (size_t i = 0; i < inferred.count; ++i) {
        const berth_value_type *type = &checker->graph->values[node->outputs[i]].type;
        char a[BERTH_TYPE_TEXT_BYTES];
        char b[BERTH_TYPE_TEXT_BYTES];
        if (!berth_type_equal(type, &inferred.types[i])) {
            return BROKEN(checker, node, "output %zu is %s, the op gives %s", i,
                          berth_type_text(type, a), berth_type_text(&inferred.types[i], b));
        }
    }
    return BERTH_OK;
}

// ---- nodes --------------------------------------------------------------------------------------

static berth_status check_op(verifier *checker, const berth_graph_node *node) {
    if (node->op == NULL ||
        node->op != berth_registry_find_op(checker->registry, node->op->op.name)) {
        return BROKEN(checker, node, "its op is none of the registry");
    }
    BERTH_TRY(check_inputs(checker, node));
    BERTH_TRY(check_attributes(checker, node));
    if (node->state_count != node->op->op.state_count) {
        return BROKEN(checker, node, "%zu states, the op has %llu", node->state_count,
                      (unsigned long long)node->op->op.state_count);
    }
    for (size_t i = 0; i < node->state_count; ++i) {
        BERTH_TRY(check_state(checker, node, i));
    }
    BERTH_TRY(check_results(checker, node, BERTH_VALUE_RESULT));
    return check_types(checker, node);
}

static berth_status check_view(verifier *checker, const berth_graph_node *node) {
    if (node->input_count != 1 || node->output_count != 1 || node->state_count != 0 ||
        node->inputs[0] == BERTH_VALUE_NONE) {
        return BROKEN(checker, node, "a view has one input and one output");
    }
    BERTH_TRY(check_input(checker, node, node->inputs[0]));
    BERTH_TRY(check_results(checker, node, BERTH_VALUE_VIEW));
    const berth_graph_value *source = &checker->graph->values[node->inputs[0]];
    const berth_graph_value *view = &checker->graph->values[node->outputs[0]];
    if (view->alias_of != node->inputs[0]) {
        return BROKEN(checker, node, "the view is not an alias of its input");
    }
    berth_value_type type = view->type;
    const berth_status status = node->kind == BERTH_NODE_SLICE
                                    ? berth_slice_type(&source->type, node, &type)
                                    : berth_reshape_check(&source->type, &view->type);
    if (status != BERTH_OK || !berth_type_equal(&type, &view->type)) {
        return BROKEN(checker, node, "the view's type does not follow from its input's");
    }
    return BERTH_OK;
}

static berth_status check_nodes(verifier *checker) {
    const berth_graph *graph = checker->graph;
    size_t results = 0;
    for (size_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        // Values without a node may stand anywhere between the results.
        while (checker->next < graph->value_count &&
               graph->values[checker->next].node == BERTH_NO_NODE) {
            ++checker->next;
        }
        BERTH_TRY(node->kind == BERTH_NODE_OP ? check_op(checker, node)
                                              : check_view(checker, node));
        results += node->output_count;
        for (size_t j = 0; j < node->state_count; ++j) {
            results += node->states_after[j] != BERTH_VALUE_NONE;
        }
    }
    for (size_t i = 1; i < graph->value_count; ++i) {
        const berth_graph_value *value = &graph->values[i];
        const bool is_root = value->kind == BERTH_VALUE_INPUT ||
                             value->kind == BERTH_VALUE_PARAMETER ||
                             value->kind == BERTH_VALUE_STATE;
        if (is_root != (value->node == BERTH_NO_NODE)) {
            return BERTH_FAIL(INTERNAL, "graph '%s': value %%%zu has the wrong kind", graph->name,
                              i);
        }
        results -= !is_root;
    }
    return results == 0
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL, "graph '%s': a value belongs to no node", graph->name);
}

static berth_status check_outputs(const berth_graph *graph) {
    for (size_t i = 0; i < graph->output_count; ++i) {
        const berth_graph_output *output = &graph->outputs[i];
        if (output->value == BERTH_VALUE_NONE || output->value >= graph->value_count ||
            is_state(&graph->values[output->value])) {
            return BERTH_FAIL(INTERNAL, "graph '%s': output '%s' is no value", graph->name,
                              output->name);
        }
        for (size_t j = 0; j < i; ++j) {
            if (strcmp(graph->outputs[j].name, output->name) == 0) {
                return BERTH_FAIL(INTERNAL, "graph '%s': two outputs '%s'", graph->name,
                                  output->name);
            }
        }
    }
    return BERTH_OK;
}

static berth_status check_graph(verifier *checker) {
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &checker->kept));
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &checker->scratch));
    checker->is_spent = BERTH_ARENA_ARRAY(checker->kept, uint8_t, checker->graph->value_count);
    if (checker->is_spent == NULL) {
        return berth_arena_exhausted(checker->kept, "the verifier");
    }
    BERTH_TRY(check_nodes(checker));
    return check_outputs(checker->graph);
}

berth_status berth_graph_verify(const berth_graph *graph, const berth_registry *registry) {
    verifier checker = {.graph = graph, .registry = registry, .next = 1};
    const berth_status status = check_graph(&checker);
    berth_arena_destroy(checker.scratch);
    berth_arena_destroy(checker.kept);
    return status;
}
