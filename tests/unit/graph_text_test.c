// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "graph/graph.h"
#include "support/core_registry.h"
#include "support/test.h"
#include "support/test_ops.h"

static const char *const sample =
    "graph \"a \\\"name\\\" \\\\ \\x01\" {\n"
    "  %1 = input token_ids : i32[s0]\n"
    "  %2 = parameter \"weight\" : f32[16, 8]\n"
    "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"
    "  %4 = state \"memory\" 0 : f32[8]\n"
    "  %5, %6' = accumulate(%3; %4) @\"memory\" enforced : f32[s0, 8]\n"
    "  %7 = scale(%5) {factor = 1e-06, bias = -0.5} : f32[s0, 8]\n"
    "  %8, %9 = norm(%7, %3) {eps = 0.1} : f32[s0, 8], f32[s0, 8]\n"
    "  %10 = slice %9 dim 1 from 4 length 4 : f32[s0, 4]\n"
    "  %11 = reshape %10 : f32[4*s0]\n"
    "  %12 = pool(%8) : f32[ceil(s0/2), 8]\n"
    "  %13 = input logits_rows : i32[s1]\n"
    "  %14 = select_rows(%8, %13) : f32[s1, 8]\n"
    "  output y = %14\n"
    "  output z = %12\n"
    "}\n";

static berth_status parse(const berth_registry *registry, const char *source, berth_graph **out) {
    return berth_graph_parse(registry, berth_str_from(source), out);
}

static void check_prints(const berth_graph *graph, const char *wanted) {
    berth_text text;
    const char *printed = NULL;
    berth_text_init(&text, 1u << 20);
    berth_graph_print(graph, &text);
    CHECK_OK(berth_text_finish(&text, &printed));
    CHECK_STR(printed, wanted);
    berth_text_deinit(&text);
}

TEST(graph_text_prints_what_was_parsed) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_graph *graph = NULL;
    CHECK_OK(parse(registry, sample, &graph));
    CHECK_STR(graph->name, "a \"name\" \\ \x01");
    CHECK(graph->nodes[1].is_enforced);
    check_prints(graph, sample);
    berth_graph_destroy(graph);
    berth_registry_destroy(registry);
}

TEST(graph_text_renumbers_and_fills_in_defaults) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_graph *graph = NULL;
    CHECK_OK(parse(registry,
                   "graph \"g\" { %70 = parameter \"x\" : f32[6]\n"
                   "%30 = Describe(%70) {sizes = [], label = \"\\x41\", weights = [1.5, -2e3]}\n"
                   ": f32[6] output y = %30 }",
                   &graph));
    check_prints(graph, "graph \"g\" {\n"
                        "  %1 = parameter \"x\" : f32[6]\n"
                        "  %2 = describe(%1) {count = 7, ratio = 0.5, flag = true, label = \"A\", "
                        "sizes = [], weights = [1.5, -2000.0]} : f32[6]\n"
                        "  output y = %2\n"
                        "}\n");
    berth_graph_destroy(graph);
    berth_registry_destroy(registry);
}

typedef struct text_case {
    const char *name;
    const char *source;
    const char *error;
} text_case;

static void check_text_case(void **state) {
    const text_case *row = *state;
    berth_registry *registry = test_ops_registry(NULL);
    berth_graph *graph = NULL;
    char source[1024];
    (void)snprintf(source, sizeof(source), "%s", row->source);
    if (row->source[0] == '%') {
        (void)snprintf(source, sizeof(source),
                       "graph \"g\" {\n%%1 = parameter \"x\" : f32[4, 2]\n%s\n}", row->source);
    }
    CHECK_STATUS(parse(registry, source, &graph), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), row->error);
    CHECK_NULL(graph);
    berth_registry_destroy(registry);
}

// A source that begins with '%' stands in line 3, behind a %1 of f32[4, 2].
static text_case text_cases[] = {
    {"empty",             "",                                                                    "graph text:1:1: 'graph' is missing at the end"               },
    {"no name",           "graph {",                                                             "graph text:1:7: a quoted name is missing before '{'"         },
    {"open string",       "graph \"g",                                                           "graph text:1:7: a string without its closing '\"'"           },
    {"no end",            "graph \"g\" {\n",                                                     "graph text:2:1: '%' is missing at the end"                   },
    {"text behind",       "graph \"g\" {} x",                                                    "graph text:1:14: text behind the last '}'"                   },
    {"escape",            "graph \"\\x00\" {}",                                                  "graph text:1:8: an escape is"                                },
    {"escape at the end", "graph \"a\\\"",                                                       "graph text:1:7: a string without"                            },
    {"control character", "graph \"a\nb\" {}",                                                   "graph text:1:9: a control character"                         },
    {"unknown op",        "%2 = ad(%1, %1) : f32[4, 2]",                                         "graph text:3:1: there is no op 'ad'; did you"                },
    {"undefined",         "%2 = add(%1, %7) : f32[4, 2]",                                        "graph text:3:14: %7 is not defined before here"              },
    {"defined twice",     "%1 = add(%1, %1) : f32[4, 2]",                                        "graph text:3:1: %1 is defined twice"                         },
    {"wrong type",        "%2 = add(%1, %1) : f32[4, 3]",
     "3:20: the text says f32[4, 3], but this is f32"                                                                                                          },
    {"no type",           "%2 = add(%1, %1)",                                                    "graph text:4:1: ':' is missing before '}'"                   },
    {"no dtype",          "%2 = parameter \"y\" : f33[4]",                                       "graph text:3:22: 'f33' is no dtype"                          },
    {"symbol",            "%2 = parameter \"y\" : f32[s2]",                                      "graph text:3:26: a number, s0 or s1"                         },
    {"zero",              "%2 = parameter \"y\" : f32[0]",                                       "graph text:3:22: a dimension of 0"                           },
    {"ranks",             "%2 = parameter \"y\" : f32[1,1,1,1,1,1,1,1,1]",                       "more than 8 dimensions"                                      },
    {"huge",              "%2 = parameter \"y\" : f32[99999999999999999999]",                    "a whole number of 64 bits"                                   },
    {"symbolic weight",   "%2 = parameter \"y\" : f32[s0]",                                      "its dimensions must be constant"                             },
    {"slice",             "%2 = slice %1 dim 1 from 1 length 2 : f32[4, 2]",                     "3:1: slice of 2 elements from 1"                             },
    {"reshape",           "%2 = reshape %1 : f32[9]",                                            "3:1: reshape of f32[4, 2] to f32[9]"                         },
    {"reshape dtype",     "%2 = reshape %1 : i32[8]",                                            "3:19: the text says i32[8], but this is f32[8]"              },
    {"attribute",         "%2 = scale(%1) {factr = 1.0} : f32[4, 2]",                            "did you mean 'factor'?"                                      },
    {"kind",              "%2 = scale(%1) {factor = 1} : f32[4, 2]",                             "must be a real, is an integer"                               },
    {"constant",          "%2 = scale(%1) {factor = } : f32[4, 2]",                              "3:26: a constant is a number"                                },
    {"minus",             "%2 = scale(%1) {factor = - 1.0} : f32[4, 2]",                         "3:26: a constant is a number"                                },
    {"mixed list",        "%2 = describe(%1) {sizes = [1, 2.0]} : f32[4, 2]",                    "a list of integers and"                                      },
    {"results",           "%2, %3 = add(%1, %1) : f32[4, 2], f32[4, 2]",                         "3:1: the op has 1 results"                                   },
    {"primed",            "%2, %3' = add(%1, %1) : f32[4, 2]",                                   "renews 0 states"                                             },
    {"state order",       "%2', %3 = add(%1, %1) : f32[4, 2]",                                   "states (primed) stand behind"                                },
    {"two inputs",        "%2, %3 = input positions : i32[s0]",                                  "3:1: 'input' gives one value"                                },
    {"input type",        "%2 = input positions : i32[s1]",                                      "3:24: the text says i32[s1]"                                 },
    {"input name",        "%2 = input position : i32[s0]",                                       "3:1: the batch has no array 'position'"                      },
    {"no such state",     "%2 = add(%1, %1; %1) : f32[4, 2]",                                    "state 0 is not the latest one of layer"                      },
    {"state as input",    "%2 = state \"l\" 0 : f32[2]\n%3 = scale(%2) {factor = 1.0} : f32[2]",
     "graph text:4:1: value %2 is a state"                                                                                                                     },
    {"old state",
     "%2 = state \"l\" 0 : f32[2] %3, %4' = accumulate(%1; %2) @\"l\" : f32[4, 2]\n"
     "%5, %6' = accumulate(%1; %2) @\"l\" : f32[4, 2]",                                          "graph text:4:1: state 0 is not the latest one of layer \"l\""},
    {"many operands",
     "%2 = add(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, "
     "_, _, _, _, _) : f32[1]",                                                                  "more than 32 operands"                                       },
    {"output twice",      "%2 = add(%1, %1) : f32[4, 2] output y = %2 output y = %1",
     "3:51: the output 'y' is declared twice"                                                                                                                  },
};

TEST_CASES(graph_text_refuses) {
    for (size_t i = 0; i < sizeof(text_cases) / sizeof(text_cases[0]); ++i) {
        test_add(cases, text_cases[i].name, check_text_case, &text_cases[i]);
    }
}

// ---- random graphs ------------------------------------------------------------------------------

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static berth_value call_op(berth_graph_builder *b, const char *name, const berth_value *inputs,
                           uint64_t count, const berth_attribute *attribute) {
    const berth_call call = {
        .size = sizeof(call),
        .name = name,
        .prefix = count == 2 ? "two \"inputs\"" : "one",
        .inputs = inputs,
        .input_count = count,
        .attributes = &attribute,
        .attribute_count = attribute != NULL,
        .enforce_enable = count == 3,
    };
    return berth_graph_op(b, &call);
}

// Adds one node of a random kind on a value of f32[s0, 8]; yields another such value.
static berth_value add_random(berth_graph_builder *b, uint64_t *random, const berth_value *values,
                              size_t count) {
    const berth_value x = values[next_random(random) % count];
    const berth_value y = values[next_random(random) % count];
    const berth_value pair[] = {x, y, BERTH_VALUE_NONE};
    const double factor = (double)next_random(random) / 1024.0 - 1e6;
    const berth_dim wide[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(4), BERTH_DIM_CONST(2)};
    const berth_dim flat[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(8)};
    switch (next_random(random) % 6) {
    case 0:
        return call_op(b, "add", pair, 2, NULL);
    case 1:
        return call_op(b, "scale", pair, 1, BERTH_F64("factor", factor));
    case 2:
        return call_op(b, "norm", pair, 1 + next_random(random) % 3, BERTH_F64("eps", 1e-5));
    case 3:
        return call_op(b, "accumulate", pair, 1, NULL);
    case 4:
        return berth_graph_reshape(b, berth_graph_reshape(b, x, wide, 3), flat, 2);
    default:
        return berth_graph_slice(b, x, 1, 0, 8);
    }
}

static berth_graph *random_graph(const berth_registry *registry, uint64_t seed) {
    berth_graph_builder *b = NULL;
    CHECK_OK(berth_graph_begin(registry, "random", &b));
    const berth_value_type type = {
        .dtype = BERTH_DTYPE_F32, .ndim = 2, .dims = {BERTH_DIM_CONST(16), BERTH_DIM_CONST(8)}
    };
    berth_value_type state = type;
    state.ndim = 1;
    state.dims[0] = BERTH_DIM_CONST(8);
    berth_graph_state(b, "one", 0, &state);
    const berth_value inputs[] = {berth_graph_input(b, "token_ids"),
                                  berth_graph_parameter(b, "w", &type)};
    berth_value values[32];
    size_t count = 1;
    values[0] = call_op(b, "embedding", inputs, 2, NULL);
    while (count < 32) {
        values[count] = add_random(b, &seed, values, count);
        ++count;
    }
    berth_graph_output_add(b, "y", values[31]);
    berth_graph *graph = NULL;
    CHECK_OK(berth_graph_finish(b, &graph));
    return graph;
}

static void check_same_ids(const berth_value *a, const berth_value *b, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        CHECK_UINT(a[i], b[i]);
    }
}

static void check_same_value(const berth_graph_value *a, const berth_graph_value *b) {
    CHECK_INT(a->kind, b->kind);
    CHECK_UINT(a->state, b->state);
    CHECK_UINT(a->node, b->node);
    CHECK_UINT(a->alias_of, b->alias_of);
    CHECK(berth_type_equal(&a->type, &b->type));
    CHECK((a->name == NULL) == (b->name == NULL));
    if (a->name != NULL) {
        CHECK_STR(a->name, b->name);
    }
}

static void check_same_node(const berth_graph_node *a, const berth_graph_node *b) {
    CHECK_INT(a->kind, b->kind);
    CHECK_PTR(a->op, b->op);
    CHECK_STR(a->layer, b->layer);
    CHECK_UINT(a->attribute_count, b->attribute_count);
    for (size_t i = 0; i < a->attribute_count; ++i) {
        CHECK_UINT(a->attributes[i]->kind, b->attributes[i]->kind);
        CHECK_BYTES(&a->attributes[i]->f64, &b->attributes[i]->f64, sizeof(double));
    }
    CHECK_UINT(a->input_count, b->input_count);
    check_same_ids(a->inputs, b->inputs, a->input_count);
    CHECK_UINT(a->state_count, b->state_count);
    check_same_ids(a->states, b->states, a->state_count);
    check_same_ids(a->states_after, b->states_after, a->state_count);
    CHECK_UINT(a->output_count, b->output_count);
    check_same_ids(a->outputs, b->outputs, a->output_count);
    CHECK_INT(a->is_enforced, b->is_enforced);
    CHECK_UINT(a->slice_dim, b->slice_dim);
    CHECK_INT(a->slice_start, b->slice_start);
    CHECK_INT(a->slice_length, b->slice_length);
}

TEST(graph_text_keeps_random_graphs_exactly) {
    berth_registry *registry = test_ops_registry(NULL);
    for (uint64_t seed = 0; seed < 50; ++seed) {
        berth_graph *graph = random_graph(registry, seed);
        berth_graph *again = NULL;
        berth_text text;
        const char *printed = NULL;
        berth_text_init(&text, 1u << 20);
        berth_graph_print(graph, &text);
        CHECK_OK(berth_text_finish(&text, &printed));
        CHECK_OK(parse(registry, printed, &again));
        check_prints(again, printed);
        CHECK_UINT(again->value_count, graph->value_count);
        CHECK_UINT(again->node_count, graph->node_count);
        for (size_t i = 0; i < graph->value_count; ++i) {
            check_same_value(&again->values[i], &graph->values[i]);
        }
        for (size_t i = 0; i < graph->node_count; ++i) {
            check_same_node(&again->nodes[i], &graph->nodes[i]);
        }
        berth_text_deinit(&text);
        berth_graph_destroy(again);
        berth_graph_destroy(graph);
    }
    berth_registry_destroy(registry);
}

TEST(graph_text_survives_every_cut) {
    berth_registry *registry = test_ops_registry(NULL);
    for (size_t size = 0; size + 2 < strlen(sample); ++size) {
        berth_graph *graph = NULL;
        const berth_str cut = {.data = sample, .size = size};
        CHECK_STATUS(berth_graph_parse(registry, cut, &graph), BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(berth_status_message(), "graph text:");
    }
    berth_registry_destroy(registry);
}

TEST(graph_text_reads_the_fuzz_corpus_with_the_core_ops) {
    core_registry core;
    berth_dir_listing seeds;
    core_registry_init(&core, NULL);
    CHECK_OK(berth_dir_list("tests/fuzz/graph_text", core.arena, &seeds));
    CHECK(seeds.count >= 3);
    for (size_t i = 0; i < seeds.count; ++i) {
        char *source = NULL;
        size_t size = 0;
        berth_graph *graph = NULL;
        const char *path = berth_path_join(core.arena, "tests/fuzz/graph_text", seeds.names[i]);
        CHECK_OK(berth_file_read(path, 1 << 20, &source, &size));
        const berth_status status = parse(core.registry, source, &graph);
        CHECK_STR(status == BERTH_OK ? "" : berth_status_message(), "");
        berth_graph_destroy(graph);
        berth_free(source);
    }
    core_registry_deinit(&core);
}

// Every allocation fails once: the parser gives up cleanly, and reads the text when none fails.
TEST(graph_text_survives_every_failing_allocation) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_graph *graph = NULL;
    uint64_t n = 0;
    do {
        (void)berth_memory_fail_after(++n);
        const berth_status status = parse(registry, sample, &graph);
        const bool has_failed = berth_memory_fail_after(0) == 0;
        CHECK_STATUS(status, has_failed ? BERTH_OUT_OF_MEMORY : BERTH_OK);
    } while (graph == NULL);
    CHECK(n > 10);
    check_prints(graph, sample);
    berth_graph_destroy(graph);
    berth_registry_destroy(registry);
}

TEST(graph_dot_names_every_node_and_edge) {
    berth_registry *registry = test_ops_registry(NULL);
    berth_graph *graph = NULL;
    CHECK_OK(parse(registry, sample, &graph));
    berth_text text;
    const char *dot = NULL;
    berth_text_init(&text, 1u << 20);
    berth_graph_print_dot(graph, &text);
    CHECK_OK(berth_text_finish(&text, &dot));
    CHECK_CONTAINS(dot, "digraph \"a \\\"name\\\" \\\\  \" {\n");
    CHECK_CONTAINS(dot, "  v1 [shape=ellipse, label=\"token_ids\\ni32[s0]\"];\n");
    CHECK_CONTAINS(dot, "  n1 [shape=box, label=\"accumulate\\nmemory\"];\n");
    CHECK_CONTAINS(dot, "  v4 -> n1 [style=dashed];\n");
    CHECK_CONTAINS(dot, "  n4 -> n5 [label=\"f32[s0, 4]\"];\n");
    berth_text_deinit(&text);
    berth_graph_destroy(graph);
    berth_registry_destroy(registry);
}
