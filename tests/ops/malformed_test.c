// SPDX-License-Identifier: Apache-2.0
// Malformed calls of every op of the catalogue, made from its accepted cases by the schema: each
// input without dimensions and of a dtype that no op computes with, each attribute with a value
// that means nothing, and attributes that the op does not have. All are refused when the graph is
// built, by a text with the op, the argument and the rule. What only one op can get wrong has lines
// "refuse" in tests/ops/<op>.txt.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "support/core_registry.h"
#include "support/op_case.h"
#include "support/test.h"

#define LAYER "site"

extern const berth_op *const berth_native_ops[]; // ends with NULL

// ---- cases --------------------------------------------------------------------------------------

// What is wrong with a call.
typedef enum fault {
    FAULT_RANK,      // an input without dimensions
    FAULT_DTYPE,     // an input of a dtype with which no op computes
    FAULT_VALUE,     // an attribute's value means nothing
    FAULT_KIND,      // an attribute of another kind
    FAULT_ATTRIBUTE, // one that the op does not have
} fault;

static const char *const what_is_wrong[] = {
    [FAULT_RANK] = "without dimensions",      [FAULT_DTYPE] = "of f8_e5m2",
    [FAULT_VALUE] = "with a senseless value", [FAULT_KIND] = "of another kind",
    [FAULT_ATTRIBUTE] = "which is unknown",
};

typedef struct malformed {
    core_registry core;
    const berth_op *op;
    fault kind;
    size_t argument; // index of the input or attribute
    bool is_tried;
    size_t wrong_count;
} malformed;

// What is no fault of an argument: a shape [...] may have no dimension, what is only moved any
// dtype, a name any text. And of two alike the other may be named.
typedef struct harmless {
    fault kind;
    const char *op;
    const char *argument;
} harmless;

static const harmless all_harmless[] = {
    {FAULT_RANK,  "add",                 "a"                  },
    {FAULT_RANK,  "mul",                 "a"                  },
    {FAULT_RANK,  "all_reduce",          "x"                  },
    {FAULT_RANK,  "broadcast",           "x"                  },
    {FAULT_RANK,  "recv",                "x"                  },
    {FAULT_RANK,  "send",                "x"                  },
    {FAULT_RANK,  "cast",                "x"                  },
    {FAULT_RANK,  "local_expert_ids",    "topk_ids"           },
    {FAULT_RANK,  "quant_fp8",           "scale"              },
    {FAULT_RANK,  "quant_fp8",           "scale_ub"           },
    {FAULT_RANK,  "scale_logits",        "x"                  },
    {FAULT_RANK,  "vocab_parallel_mask", "token_ids"          },
    {FAULT_RANK,  "xielu",               "beta"               },
    {FAULT_RANK,  "xielu",               "eps"                },
    {FAULT_DTYPE, "all_gather",          "x"                  },
    {FAULT_DTYPE, "all_reduce",          "x"                  },
    {FAULT_DTYPE, "broadcast",           "x"                  },
    {FAULT_DTYPE, "gather",              "x"                  },
    {FAULT_DTYPE, "mask_rows",           "x"                  },
    {FAULT_DTYPE, "recv",                "x"                  },
    {FAULT_DTYPE, "reduce_scatter",      "x"                  },
    {FAULT_DTYPE, "send",                "x"                  },
    {FAULT_VALUE, "all_gather",          "group_name"         },
    {FAULT_VALUE, "all_reduce",          "group_name"         },
    {FAULT_VALUE, "broadcast",           "group_name"         },
    {FAULT_VALUE, "gather",              "group_name"         },
    {FAULT_VALUE, "recv",                "group_name"         },
    {FAULT_VALUE, "reduce_scatter",      "group_name"         },
    {FAULT_VALUE, "send",                "group_name"         },
    {FAULT_VALUE, "paged_attention",     "causal_per_sequence"},
    {FAULT_VALUE, "rotary_attention",    "causal_per_sequence"},
};

static bool is_harmless(const malformed *it, const char *argument) {
    for (size_t i = 0; i < sizeof all_harmless / sizeof all_harmless[0]; ++i) {
        if (all_harmless[i].kind == it->kind && strcmp(all_harmless[i].op, it->op->name) == 0 &&
            strcmp(all_harmless[i].argument, argument) == 0) {
            return true;
        }
    }
    return false;
}

// ---- a call -------------------------------------------------------------------------------------

// Operands are parameters, so nothing of them is symbolic.
static berth_value_type constant_type(const op_tensor *tensor) {
    berth_value_type type = tensor->type;
    type.size = sizeof type;
    for (uint32_t dim = 0; dim < type.ndim; ++dim) {
        type.dims[dim] = BERTH_DIM_CONST(tensor->shape[dim]);
    }
    return type;
}

static berth_value_type type_of(const malformed *it, const op_case *at, size_t input) {
    berth_value_type type = constant_type(&at->inputs[input]);
    if (it->argument == input && it->kind == FAULT_RANK) {
        type.ndim = 0;
    }
    if (it->argument == input && it->kind == FAULT_DTYPE) {
        type.dtype = BERTH_DTYPE_F8_E5M2;
    }
    return type;
}

// A value that no attribute of the kind means.
static berth_attribute spoil(const malformed *it, berth_attribute given) {
    static const int64_t i64s[] = {INT64_MIN};
    static const double f64s[] = {NAN};
    if (it->kind == FAULT_KIND) {
        given.kind = given.kind == BERTH_ATTRIBUTE_STR ? BERTH_ATTRIBUTE_F64 : BERTH_ATTRIBUTE_STR;
        given.str = "text";
        return given;
    }
    given.i64 = INT64_MIN;
    given.f64 = NAN;
    given.str = "no-such-word";
    given.i64s = i64s;
    given.f64s = f64s;
    given.count = 1;
    return given;
}

static uint64_t make_attributes(const malformed *it, const op_case *at, berth_attribute *made,
                                const berth_attribute **out) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < it->op->attribute_count; ++i) {
        const bool is_spoilt =
            (it->kind == FAULT_VALUE || it->kind == FAULT_KIND) && i == it->argument;
        made[i] = at->attributes[i];
        made[i].kind = is_spoilt ? it->op->attributes[i]->kind : made[i].kind;
        made[i] = is_spoilt ? spoil(it, made[i]) : made[i];
        made[i].size = sizeof made[i];
        made[i].name = it->op->attributes[i]->name;
        if (made[i].kind != BERTH_ATTRIBUTE_NONE) {
            out[count++] = &made[i];
        }
    }
    static const berth_attribute unknown = {
        .size = sizeof unknown,
        .name = "no_such_attribute",
        .kind = BERTH_ATTRIBUTE_I64,
    };
    if (it->kind == FAULT_ATTRIBUTE) {
        out[count++] = &unknown;
    }
    return count;
}

static berth_status build(const malformed *it, const op_case *at) {
    berth_graph_builder *builder = NULL;
    berth_graph *graph = NULL;
    berth_value inputs[BERTH_MAX_INPUTS] = {0};
    berth_attribute made[OP_MAX_ATTRIBUTES + 1];
    const berth_attribute *attributes[OP_MAX_ATTRIBUTES + 1];
    CHECK_OK(berth_graph_begin(it->core.registry, it->op->name, &builder));
    for (uint64_t i = 0; i < it->op->state_count; ++i) {
        if (op_tensor_is_present(&at->states[i])) {
            const berth_value_type type = constant_type(&at->states[i]);
            berth_graph_state(builder, LAYER, i, &type);
        }
    }
    for (uint64_t i = 0; i < it->op->input_count; ++i) {
        const berth_value_type type = type_of(it, at, i);
        inputs[i] = op_tensor_is_present(&at->inputs[i])
                        ? berth_graph_parameter(builder, it->op->inputs[i]->name, &type)
                        : BERTH_VALUE_NONE;
    }
    const berth_call call = {
        .size = sizeof call,
        .name = it->op->name,
        .prefix = LAYER,
        .inputs = inputs,
        .input_count = it->op->input_count,
        .attributes = attributes,
        .attribute_count = make_attributes(it, at, made, attributes),
    };
    (void)berth_graph_op(builder, &call);
    const berth_status status = berth_graph_finish(builder, &graph);
    if (status == BERTH_OK) {
        berth_graph_destroy(graph);
    }
    return status;
}

// ---- what is expected ---------------------------------------------------------------------------

static bool is_input_fault(fault kind) {
    return kind == FAULT_RANK || kind == FAULT_DTYPE;
}

static void check_call(malformed *it, const op_case *at) {
    const char *argument = it->kind == FAULT_ATTRIBUTE ? "no_such_attribute"
                           : is_input_fault(it->kind)  ? it->op->inputs[it->argument]->name
                                                       : it->op->attributes[it->argument]->name;
    char quoted[80];
    if (is_harmless(it, argument)) {
        return;
    }
    (void)snprintf(quoted, sizeof quoted, "'%s'", argument);
    const berth_status status = build(it, at);
    const char *text = status == BERTH_OK ? "accepted" : berth_status_message();
    if (status != BERTH_INVALID_ARGUMENT || strstr(text, it->op->name) == NULL ||
        strstr(text, quoted) == NULL) {
        (void)fprintf(stderr, "%s, '%s' %s: %s\n", it->op->name, argument, what_is_wrong[it->kind],
                      text);
        ++it->wrong_count;
    }
    berth_status_clear();
}

static bool has_elements(const op_case *at) {
    for (size_t i = 0; i < at->op->input_count; ++i) {
        if (op_tensor_is_present(&at->inputs[i]) && op_tensor_count(&at->inputs[i]) == 0) {
            return false;
        }
    }
    return true;
}

static void try_line(const op_line *line, void *context) {
    malformed *it = context;
    op_case at;
    if (it->is_tried || line->kind == OP_LINE_REFUSE) {
        return;
    }
    op_line_build(line, &at);
    if (has_elements(&at) &&
        (!is_input_fault(it->kind) || op_tensor_is_present(&at.inputs[it->argument]))) {
        it->is_tried = true;
        check_call(it, &at);
    }
    op_case_free(&at);
}

// The first case of the op in which the argument is there, with the fault.
static void check_fault(malformed *it, fault kind, size_t argument) {
    char path[128];
    it->kind = kind;
    it->argument = argument;
    it->is_tried = false;
    (void)snprintf(path, sizeof path, "tests/ops/%s.txt", it->op->name);
    op_lines_read(it->op, path, try_line, it);
    if (!it->is_tried) {
        (void)fprintf(stderr, "no case of %s has its input %zu\n", it->op->name, argument);
        ++it->wrong_count;
    }
}

static void check_inputs(fault kind) {
    malformed it = {0};
    core_registry_init(&it.core, NULL);
    for (const berth_op *const *op = berth_native_ops; *op != NULL; ++op) {
        it.op = *op;
        for (size_t i = 0; i < it.op->input_count; ++i) {
            check_fault(&it, kind, i);
        }
    }
    core_registry_deinit(&it.core);
    CHECK_UINT(it.wrong_count, 0);
}

static void check_attributes(fault kind) {
    malformed it = {0};
    core_registry_init(&it.core, NULL);
    for (const berth_op *const *op = berth_native_ops; *op != NULL; ++op) {
        it.op = *op;
        for (size_t i = 0; i < it.op->attribute_count; ++i) {
            if (kind == FAULT_KIND || it.op->attributes[i]->kind != BERTH_ATTRIBUTE_BOOL) {
                check_fault(&it, kind, i);
            }
        }
    }
    core_registry_deinit(&it.core);
    CHECK_UINT(it.wrong_count, 0);
}

TEST(an_input_without_dimensions_is_refused_and_named) {
    check_inputs(FAULT_RANK);
}

TEST(an_input_of_a_dtype_without_arithmetic_is_refused_and_named) {
    check_inputs(FAULT_DTYPE);
}

TEST(an_attribute_with_a_value_that_means_nothing_is_refused_and_named) {
    check_attributes(FAULT_VALUE);
}

TEST(an_attribute_of_another_kind_is_refused_and_named) {
    check_attributes(FAULT_KIND);
}

TEST(an_attribute_that_the_op_does_not_have_is_refused_and_named) {
    malformed it = {0};
    core_registry_init(&it.core, NULL);
    for (const berth_op *const *op = berth_native_ops; *op != NULL; ++op) {
        it.op = *op;
        check_fault(&it, FAULT_ATTRIBUTE, 0);
    }
    core_registry_deinit(&it.core);
    CHECK_UINT(it.wrong_count, 0);
}

// ---- states -------------------------------------------------------------------------------------

// Four heads of eight numbers over a cache of blocks like this.
static void check_cache(const core_registry *core, int64_t heads, int64_t size, const char *rule) {
    const berth_value_type block = {
        .size = sizeof block,
        .dtype = BERTH_DTYPE_F32,
        .ndim = 3,
        .dims = {BERTH_DIM_CONST(16), BERTH_DIM_CONST(heads), BERTH_DIM_CONST(size)},
    };
    const berth_value_type rows = {
        .size = sizeof rows,
        .dtype = BERTH_DTYPE_F32,
        .ndim = 3,
        .dims = {BERTH_DIM_CONST(2), BERTH_DIM_CONST(4), BERTH_DIM_CONST(8)},
    };
    const berth_attribute scale = {
        .size = sizeof scale,
        .name = "scale",
        .kind = BERTH_ATTRIBUTE_F64,
        .f64 = 0.5,
    };
    const berth_attribute *const attributes[] = {&scale};
    berth_graph_builder *builder = NULL;
    berth_graph *graph = NULL;
    CHECK_OK(berth_graph_begin(core->registry, "cache", &builder));
    berth_graph_state(builder, LAYER, 0, &block);
    berth_graph_state(builder, LAYER, 1, &block);
    const berth_value query = berth_graph_parameter(builder, "query", &rows);
    const berth_call call = {
        .size = sizeof call,
        .name = "paged_attention",
        .prefix = LAYER,
        .inputs = &query,
        .input_count = 1,
        .attributes = attributes,
        .attribute_count = 1,
    };
    (void)berth_graph_op(builder, &call);
    CHECK_STATUS(berth_graph_finish(builder, &graph), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), rule);
    berth_status_clear();
}

TEST(a_cache_of_other_heads_is_refused_and_named) {
    core_registry core;
    core_registry_init(&core, NULL);
    check_cache(&core, 2, 6, "paged_attention: 'key_cache' must have heads of 8 numbers");
    check_cache(&core, 3, 8, "paged_attention: 'key_cache' must have a number of heads that");
    core_registry_deinit(&core);
}
