// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "graph/graph.h"
#include "support/test.h"
#include "support/test_ops.h"

static berth_value_type type_of(berth_dtype dtype, int64_t a, int64_t b) {
    return (berth_value_type){
        .size = sizeof(berth_value_type),
        .dtype = dtype,
        .ndim = b == 0 ? 1 : 2,
        .dims = {BERTH_DIM_CONST(a), BERTH_DIM_CONST(b)},
    };
}

static berth_value parameter(berth_graph_builder *b, const char *name, int64_t rows,
                             int64_t columns) {
    const berth_value_type type = type_of(BERTH_DTYPE_F32, rows, columns);
    return berth_graph_parameter(b, name, &type);
}

static berth_value op(berth_graph_builder *b, const char *name, berth_value x, berth_value y) {
    const berth_value inputs[] = {x, y};
    const berth_call call = {
        .size = sizeof(call),
        .name = name,
        .prefix = "layer",
        .inputs = inputs,
        .input_count = y == BERTH_VALUE_NONE ? 1 : 2,
    };
    return berth_graph_op(b, &call);
}

static berth_value scale(berth_graph_builder *b, berth_value x,
                         const berth_attribute *const *attributes, size_t count) {
    const berth_call call = {
        .size = sizeof(call),
        .name = "scale",
        .inputs = &x,
        .input_count = 1,
        .attributes = attributes,
        .attribute_count = count,
    };
    return berth_graph_op(b, &call);
}

// A builder with %1 token_ids, %2 weight [16, 8] and %3 their embedding [s0, 8].
static berth_graph_builder *begin(berth_registry *registry, berth_value *out_x) {
    berth_graph_builder *b = NULL;
    CHECK_OK(berth_graph_begin(registry, "test", &b));
    const berth_value ids = berth_graph_input(b, "token_ids");
    *out_x = op(b, "embedding", ids, parameter(b, "weight", 16, 8));
    return b;
}

static void check_refused(berth_graph_builder *b, berth_status code, const char *part) {
    berth_graph *graph = NULL;
    CHECK(berth_graph_has_failed(b));
    CHECK_STATUS(berth_graph_finish(b, &graph), code);
    CHECK_NULL(graph);
    CHECK_CONTAINS(berth_status_message(), part);
}

TEST(graph_builder_gives_a_verified_graph) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    berth_graph_output_add(b, "y", op(b, "Add", x, x));
    berth_graph *graph = NULL;
    CHECK_OK(berth_graph_finish(b, &graph));
    CHECK_STR(graph->name, "test");
    CHECK_UINT(graph->value_count, 5);
    CHECK_UINT(graph->node_count, 2);
    CHECK_STR(graph->nodes[1].op->op.name, "add");
    CHECK_STR(graph->nodes[1].layer, "layer");
    CHECK_UINT(graph->outputs[0].value, graph->nodes[1].outputs[0]);
    const berth_value_type *type = &graph->values[4].type;
    CHECK_UINT(type->dims[0].symbol, BERTH_SYMBOL_TOKENS);
    CHECK_INT(berth_type_elements(type, 5, 1), 40);
    berth_graph_destroy(graph);
    berth_registry_destroy(registry);
}

TEST(graph_builder_gives_the_same_value_for_the_same_name) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    CHECK_UINT(parameter(b, "weight", 16, 8), 2);
    CHECK_UINT(berth_graph_input(b, "token_ids"), 1);
    CHECK(!berth_graph_has_failed(b));
    CHECK_UINT(parameter(b, "weight", 8, 16), BERTH_VALUE_NONE);
    check_refused(b, BERTH_INVALID_ARGUMENT,
                  "'weight' is declared as f32[16, 8] and again as f32[8, 16]");
    berth_registry_destroy(registry);
}

TEST(graph_builder_fills_in_defaults_in_the_ops_order) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    const berth_attribute *const given[] = {BERTH_F64("bias", 2.0), BERTH_F64("factor", 3.0)};
    (void)scale(b, x, given, 2);
    (void)scale(b, x, given + 1, 1);
    (void)op(b, "describe", x, BERTH_VALUE_NONE);
    berth_graph *graph = NULL;
    CHECK_OK(berth_graph_finish(b, &graph));
    CHECK_STR(graph->nodes[1].attributes[0]->name, "factor");
    CHECK_NEAR(graph->nodes[1].attributes[1]->f64, 2.0, 0);
    CHECK_NEAR(graph->nodes[2].attributes[0]->f64, 3.0, 0);
    CHECK_UINT(graph->nodes[2].attributes[1]->kind, BERTH_ATTRIBUTE_F64);
    const berth_attribute *const *all = graph->nodes[3].attributes;
    CHECK_UINT(graph->nodes[3].attribute_count, 6);
    CHECK_INT(all[0]->i64, 7);
    CHECK_STR(all[3]->str, "plain");
    CHECK_INT(all[4]->i64s[1], -4);
    CHECK_UINT(all[5]->kind, BERTH_ATTRIBUTE_NONE);
    berth_graph_destroy(graph);
    berth_registry_destroy(registry);
}

typedef struct attribute_case {
    const char *name;
    const berth_attribute *attributes[3];
    size_t count;
    const char *text;
} attribute_case;

static void check_attribute_case(void **state) {
    const attribute_case *row = *state;
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    CHECK_UINT(scale(b, x, row->attributes, row->count), BERTH_VALUE_NONE);
    check_refused(b, BERTH_INVALID_ARGUMENT, row->text);
    berth_registry_destroy(registry);
}

TEST_CASES(graph_builder_refuses_attributes) {
    static attribute_case rows[5];
    static const berth_attribute one = {.size = sizeof(one), .name = "factor", .kind = 1, .i64 = 1};
    static const berth_attribute real = {
        .size = sizeof(real), .name = "factor", .kind = BERTH_ATTRIBUTE_F64, .f64 = 1.0};
    static const berth_attribute odd = {
        .size = sizeof(odd), .name = "factr", .kind = BERTH_ATTRIBUTE_F64, .f64 = 1.0};
    static berth_attribute endless = {
        .size = sizeof(endless), .name = "factor", .kind = BERTH_ATTRIBUTE_F64};
    endless.f64 = 1e308 * 10.0;
    rows[0] = (attribute_case){"missing", {0}, 0, "op 'scale' needs the attribute 'factor'"};
    rows[1] = (attribute_case){"kind", {&one}, 1, "'factor' must be a real, is an integer"};
    rows[2] = (attribute_case){
        "unknown", {&real, &odd},
         2, "did you mean 'factor'?"
    };
    rows[3] = (attribute_case){
        "twice", {&real, &real},
         2, "'factor' is given twice"
    };
    rows[4] = (attribute_case){"infinite", {&endless}, 1, "'factor' must be finite"};
    for (size_t i = 0; i < 5; ++i) {
        test_add(cases, rows[i].name, check_attribute_case, &rows[i]);
    }
}

TEST(graph_builder_names_the_nearest_op) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    CHECK_UINT(op(b, "embeding", x, x), BERTH_VALUE_NONE);
    check_refused(b, BERTH_NOT_FOUND, "there is no op 'embeding'; did you mean 'embedding'?");
    berth_registry_destroy(registry);
}

TEST(graph_builder_passes_on_what_an_op_refuses_and_where) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    (void)op(b, "linear", x, parameter(b, "flat", 8, 0));
    check_refused(b, BERTH_INVALID_ARGUMENT, "'weight' has rank 1, must have 2");
    CHECK_CONTAINS(berth_status_message(), "adding linear(f32[s0, 8], f32[8]) of layer layer");
    berth_registry_destroy(registry);
}

TEST(graph_builder_keeps_the_first_failure_and_does_nothing_after_it) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    berth_graph_fail(b, BERTH_UNSUPPORTED, "the first");
    berth_graph_fail(b, BERTH_CORRUPT, "the second");
    CHECK_UINT(berth_graph_input(b, "no such array"), BERTH_VALUE_NONE);
    CHECK_UINT(op(b, "add", x, x), BERTH_VALUE_NONE);
    CHECK_UINT(berth_graph_slice(b, x, 0, 0, 1), BERTH_VALUE_NONE);
    CHECK_UINT(berth_graph_type(b, x)->ndim, 0);
    berth_graph_output_add(b, "y", x);
    check_refused(b, BERTH_UNSUPPORTED, "the first");
    berth_registry_destroy(registry);
}

TEST(graph_builder_refuses_wrong_operands) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    (void)op(b, "add", x, BERTH_VALUE_NONE);
    check_refused(b, BERTH_INVALID_ARGUMENT, "op 'add' needs the input 'b'");
    b = begin(registry, &x);
    (void)op(b, "add", x, 99);
    check_refused(b, BERTH_INVALID_ARGUMENT, "there is no value %99");
    b = begin(registry, &x);
    (void)op(b, "pool", x, x);
    check_refused(b, BERTH_INVALID_ARGUMENT, "op 'pool' takes 1 inputs, got 2");
    b = begin(registry, &x);
    (void)berth_graph_input(b, "logit_rows");
    check_refused(b, BERTH_NOT_FOUND, "the batch has no array 'logit_rows'");
    b = begin(registry, &x);
    berth_value outputs[2];
    const berth_call call = {.size = sizeof(call),
                             .name = "pool",
                             .inputs = &x,
                             .input_count = 1,
                             BERTH_OUTPUTS(outputs)};
    (void)berth_graph_op(b, &call);
    check_refused(b, BERTH_INVALID_ARGUMENT, "op 'pool' gives 1 outputs here, 2 are wanted");
    berth_registry_destroy(registry);
}

TEST(graph_builder_chains_the_versions_of_a_state) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    const berth_value_type type = type_of(BERTH_DTYPE_F32, 8, 0);
    berth_graph_state(b, "layer", 0, &type);
    const berth_value y = op(b, "accumulate", x, BERTH_VALUE_NONE);
    berth_graph_output_add(b, "y", op(b, "accumulate", y, BERTH_VALUE_NONE));
    berth_graph *graph = NULL;
    CHECK_OK(berth_graph_finish(b, &graph));
    const berth_graph_node *first = &graph->nodes[1];
    const berth_graph_node *second = &graph->nodes[2];
    CHECK_INT(graph->values[first->states[0]].kind, BERTH_VALUE_STATE);
    CHECK_UINT(second->states[0], first->states_after[0]);
    CHECK_INT(graph->values[second->states_after[0]].kind, BERTH_VALUE_MUTATED);
    CHECK_UINT(graph->values[second->states_after[0]].alias_of, second->states[0]);
    berth_graph_destroy(graph);
    berth_registry_destroy(registry);
}

TEST(graph_builder_refuses_states_out_of_order) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    const berth_value_type type = type_of(BERTH_DTYPE_F32, 8, 0);
    berth_graph_builder *b = begin(registry, &x);
    (void)op(b, "accumulate", x, BERTH_VALUE_NONE);
    check_refused(b, BERTH_INVALID_ARGUMENT, "the state 'total' of layer 'layer', which is not");
    b = begin(registry, &x);
    berth_graph_state(b, "layer", 0, &type);
    berth_graph_state(b, "layer", 0, &type);
    check_refused(b, BERTH_ALREADY_EXISTS, "state 0 of layer 'layer' is declared twice");
    b = begin(registry, &x);
    berth_graph_state(b, "layer", 0, &type);
    (void)op(b, "add", x, x + 1);
    check_refused(b, BERTH_INVALID_ARGUMENT, "is a state, which only the node of its layer");
    berth_registry_destroy(registry);
}

TEST(graph_builder_slices_constant_dimensions_within_bounds) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    const berth_value view = berth_graph_slice(b, x, 1, 6, 2);
    CHECK_INT(berth_graph_type(b, view)->dims[1].b, 2);
    const berth_value nothing = berth_graph_slice(b, x, 1, 8, 0); // as an empty batch has it
    CHECK_INT(berth_graph_type(b, nothing)->dims[1].b, 0);
    (void)berth_graph_slice(b, x, 1, 6, 3);
    check_refused(b, BERTH_INVALID_ARGUMENT,
                  "slice of 3 elements from 6 is outside dimension 1 of f32[s0, 8]");
    b = begin(registry, &x);
    (void)berth_graph_slice(b, x, 0, 0, 1);
    check_refused(b, BERTH_INVALID_ARGUMENT, "only a constant dimension can be sliced");
    b = begin(registry, &x);
    (void)berth_graph_slice(b, x, 2, 0, 1);
    check_refused(b, BERTH_INVALID_ARGUMENT, "which has 2 dimensions");
    b = begin(registry, &x);
    (void)berth_graph_slice(b, x, 1, INT64_MAX, 1);
    check_refused(b, BERTH_INVALID_ARGUMENT, "is outside dimension 1");
    berth_registry_destroy(registry);
}

TEST(graph_builder_reshapes_symbolic_elements) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    const berth_dim split[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(2), BERTH_DIM_CONST(4)};
    const berth_dim flat[] = {
        {.symbol = BERTH_SYMBOL_TOKENS, .a = 16, .b = 0, .c = 2}
    };
    const berth_value view = berth_graph_reshape(b, x, split, 3);
    const berth_value line = berth_graph_reshape(b, view, flat, 1);
    CHECK_INT(berth_graph_type(b, line)->dims[0].a, 8);
    const berth_dim rows[] = {BERTH_DIM_SEQUENCES, BERTH_DIM_CONST(8)};
    (void)berth_graph_reshape(b, line, rows, 2);
    check_refused(b, BERTH_INVALID_ARGUMENT, "reshape of f32[8*s0] to f32[s1, 8]");
    b = begin(registry, &x);
    const berth_dim more[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(9)};
    (void)berth_graph_reshape(b, x, more, 2);
    check_refused(b, BERTH_INVALID_ARGUMENT, "the number of elements must be the same");
    b = begin(registry, &x);
    const berth_dim none[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(0)};
    (void)berth_graph_reshape(b, x, none, 2);
    check_refused(b, BERTH_INVALID_ARGUMENT, "a dimension of 0: it must be at least 1");
    berth_registry_destroy(registry);
}

TEST(graph_builder_refuses_outputs_that_are_none) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_value x = BERTH_VALUE_NONE;
    berth_graph_builder *b = begin(registry, &x);
    berth_graph_output_add(b, "y", x);
    berth_graph_output_add(b, "y", x);
    check_refused(b, BERTH_ALREADY_EXISTS, "the output 'y' is declared twice");
    b = begin(registry, &x);
    berth_graph_output_add(b, "not plain", x);
    check_refused(b, BERTH_INVALID_ARGUMENT, "letters, digits and '_' only");
    b = begin(registry, &x);
    berth_graph_output_add(b, "y", BERTH_VALUE_NONE);
    check_refused(b, BERTH_INVALID_ARGUMENT, "there is no value %0");
    berth_registry_destroy(registry);
}

// A graph for the verifier to look at, and a changeable copy of one of its nodes.
typedef struct broken {
    berth_registry *registry;
    berth_graph *graph;
    berth_graph copy;
    berth_graph_value values[16];
    berth_graph_node nodes[8];
} broken;

static void break_begin(broken *it) {
    berth_value x = BERTH_VALUE_NONE;
    it->registry = test_ops_registry(NULL);
    berth_graph_builder *b = begin(it->registry, &x);
    const berth_value_type type = type_of(BERTH_DTYPE_F32, 8, 0);
    berth_graph_state(b, "layer", 0, &type);
    const berth_value y = op(b, "accumulate", berth_graph_slice(b, x, 1, 0, 8), BERTH_VALUE_NONE);
    berth_graph_output_add(b, "y", op(b, "add", y, x));
    CHECK_OK(berth_graph_finish(b, &it->graph));
    it->copy = *it->graph;
    CHECK(it->copy.value_count <= 16 && it->copy.node_count <= 8);
    memcpy(it->values, it->graph->values, it->copy.value_count * sizeof(it->values[0]));
    memcpy(it->nodes, it->graph->nodes, it->copy.node_count * sizeof(it->nodes[0]));
    it->copy.values = it->values;
    it->copy.nodes = it->nodes;
    CHECK_OK(berth_graph_verify(&it->copy, it->registry));
}

static void break_end(broken *it, const char *part) {
    CHECK_STATUS(berth_graph_verify(&it->copy, it->registry), BERTH_INTERNAL);
    CHECK_CONTAINS(berth_status_message(), part);
    berth_graph_destroy(it->graph);
    berth_registry_destroy(it->registry);
}

TEST(graph_verify_finds_a_use_before_the_value) {
    broken it;
    break_begin(&it);
    const berth_value late[] = {it.nodes[3].outputs[0], 3};
    it.nodes[3].inputs = late;
    break_end(&it, "is made after its use (while verifying node 3 (add) of graph 'test')");
}

TEST(graph_verify_finds_a_wrong_type) {
    broken it;
    break_begin(&it);
    it.values[it.nodes[3].outputs[0]].type.dims[1].b = 9;
    break_end(&it, "output 0 is f32[s0, 9], the op gives f32[s0, 8]");
}

TEST(graph_verify_finds_a_view_that_is_no_alias) {
    broken it;
    break_begin(&it);
    it.values[it.nodes[1].outputs[0]].alias_of = 1;
    break_end(&it, "the view is not an alias of its input");
}

TEST(graph_verify_finds_a_state_used_twice) {
    broken it;
    break_begin(&it);
    it.nodes[3] = it.nodes[2];
    break_end(&it, "is not the latest version of a state");
}

TEST(graph_verify_finds_a_missing_input) {
    broken it;
    break_begin(&it);
    const berth_value none[] = {3, BERTH_VALUE_NONE};
    it.nodes[3].inputs = none;
    break_end(&it, "the input 'b' is absent");
}

TEST(graph_verify_finds_a_lost_node) {
    broken it;
    break_begin(&it);
    it.copy.node_count = 3;
    break_end(&it, "a value belongs to no node");
}
