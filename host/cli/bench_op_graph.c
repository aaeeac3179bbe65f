// SPDX-License-Identifier: Apache-2.0
// Input: a case. Output: its graph. Every x is made by an embedding of the step's tokens, all of
// them before the first op, so that an op never finds its x in a cache.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "cli/bench_op.h"

// ---- pieces -------------------------------------------------------------------------------------

berth_value berth_op_parameter(const berth_op_graph *graph, const char *what, berth_dtype dtype,
                               int64_t rows, int64_t columns) {
    char name[64];
    const berth_value_type type = {
        .size = sizeof type,
        .dtype = dtype,
        .ndim = rows > 0 ? 2 : 1,
        .dims = {BERTH_DIM_CONST(rows > 0 ? rows : columns), BERTH_DIM_CONST(columns)},
    };
    (void)snprintf(name, sizeof name, "%s.%s", graph->name, what);
    return berth_graph_parameter(graph->builder, name, &type);
}

berth_value berth_op_look_up(const berth_op_graph *graph, berth_value table) {
    return BERTH_OP_EMIT(
        graph, "embedding", BERTH_INPUTS(berth_graph_input(graph->builder, "token_ids"), table),
        BERTH_ATTRIBUTES(BERTH_TEXT("out_dtype", berth_dtype_name(graph->size.dtype))));
}

berth_value berth_op_heads(const berth_op_graph *graph, berth_value x, int64_t count) {
    const berth_dim dims[] = {
        BERTH_DIM_TOKENS,
        BERTH_DIM_CONST(count),
        BERTH_DIM_CONST(graph->of->in),
    };
    return berth_graph_reshape(graph->builder, x, dims, BERTH_COUNT(dims));
}

berth_value_type berth_op_block(const berth_op_case *of, berth_dtype dtype) {
    return (berth_value_type){
        .size = sizeof(berth_value_type),
        .dtype = dtype,
        .ndim = 3,
        .dims = {BERTH_DIM_CONST(BERTH_OP_BLOCK), BERTH_DIM_CONST(of->x_widths[1] / of->in),
                 BERTH_DIM_CONST(of->in)},
    };
}

// ---- graphs -------------------------------------------------------------------------------------

// All x of all copies, from one table for each width. Why they are outputs: else a copy's results
// would go where the copy before it had its x, into lines that are still in the cache.
static void emit_inputs(berth_op_graph *graph, berth_value (*x)[3]) {
    for (size_t i = 0; i < graph->of->x_count; ++i) {
        char what[32];
        (void)snprintf(what, sizeof what, "x%zu", i);
        const berth_value table = berth_op_parameter(graph, what, graph->size.dtype,
                                                     BERTH_OP_TOKENS, graph->of->x_widths[i]);
        for (size_t copy = 0; copy < graph->size.copies; ++copy) {
            x[copy][i] = berth_op_look_up(graph, table);
            (void)snprintf(what, sizeof what, "x%zu_%zu", i, copy);
            berth_graph_output_add(graph->builder, what, x[copy][i]);
        }
    }
}

static void emit_copy(berth_op_graph *graph, size_t copy, const berth_value *x) {
    berth_value outs[BERTH_MAX_OUTPUTS] = {BERTH_VALUE_NONE};
    char name[32];
    (void)snprintf(graph->name, sizeof graph->name, "copy.%zu", copy);
    const berth_value y =
        graph->of->text ? berth_op_text_emit(graph, outs) : graph->of->emit(graph, x, outs);
    for (size_t i = 0; i < graph->of->output_count; ++i) {
        (void)snprintf(name, sizeof name, "%c%zu", BERTH_OP_OUTPUTS[i], copy);
        berth_graph_output_add(graph->builder, name, i == 0 ? y : outs[i - 1]);
    }
}

berth_status berth_op_graph_build(const berth_registry *registry, const berth_op_case *one,
                                  const berth_op_size *size, berth_graph **out_graph) {
    berth_op_graph graph = {.registry = registry, .of = one, .size = *size, .name = "inputs"};
    berth_value x[BERTH_OP_COPIES][3];
    BERTH_TRY(berth_graph_begin(registry, one->name, &graph.builder));
    emit_inputs(&graph, x);
    for (size_t i = 0; i < size->copies; ++i) {
        emit_copy(&graph, i, x[i]);
    }
    return berth_graph_finish(graph.builder, out_graph);
}

berth_status berth_op_graph_caches(const berth_op_case *one, const berth_op_size *size,
                                   berth_arena *arena, berth_kv_cache_spec **out_caches) {
    const berth_value_type block = berth_op_block(one, size->dtype);
    const uint64_t elements = (uint64_t)berth_type_elements(&block, 1, 1);
    *out_caches = BERTH_ARENA_ARRAY(arena, berth_kv_cache_spec, size->copies);
    for (size_t i = 0; i < size->copies && *out_caches; ++i) {
        (*out_caches)[i] = (berth_kv_cache_spec){
            .size = sizeof(berth_kv_cache_spec),
            .layer = berth_arena_printf(arena, "copy.%zu", i),
            .num_heads = one->out,
            .num_kv_heads = block.dims[1].b,
            .head_size = one->in,
            .block_size = BERTH_OP_BLOCK,
            .dtype = size->dtype,
            .page_bytes = 2 * berth_dtype_bytes(size->dtype, elements),
        };
    }
    return *out_caches ? BERTH_OK : berth_arena_exhausted(arena, "caches");
}

// ---- work ---------------------------------------------------------------------------------------

static const berth_graph_node *last_op(const berth_graph *graph) {
    for (size_t i = graph->node_count; i-- > 0;) {
        if (graph->nodes[i].kind == BERTH_NODE_OP) {
            return &graph->nodes[i];
        }
    }
    return NULL;
}

static double bytes_of(const berth_graph *graph, berth_value value, int64_t tokens) {
    const berth_value_type *type = &graph->values[value].type;
    const int64_t elements = value ? berth_type_elements(type, tokens, tokens) : 0;
    return (double)berth_dtype_bytes(type->dtype, (uint64_t)elements);
}

// What is read, and written to a state.
static double operand_bytes(const berth_op_case *one, const berth_graph *graph,
                            const berth_graph_node *node) {
    const berth_op *op = &node->op->op;
    double bytes = 0;
    for (size_t i = 0; i < node->input_count; ++i) {
        bytes += bytes_of(graph, node->inputs[i], one->tokens) *
                 berth_op_text_share(one, op->inputs[i]->name);
    }
    for (size_t i = 0; i < node->state_count && one->text; ++i) {
        bytes += bytes_of(graph, node->states[i], one->tokens) *
                 berth_op_text_share(one, op->states[i]->name);
    }
    return bytes;
}

double berth_op_case_bytes(const berth_op_case *one, const berth_graph *graph,
                           bool is_output_only) {
    const berth_graph_node *node = last_op(graph);
    double written = 0;
    for (size_t i = 0; i < node->output_count; ++i) {
        written += bytes_of(graph, node->outputs[i], one->tokens);
    }
    double bytes = operand_bytes(one, graph, node);
    if (strcmp(one->op, "embedding") == 0) { // of the table the rows that are asked for
        bytes = (double)(one->tokens * one->out) * 2;
    }
    if (one->context > 0 && !one->text) {
        const berth_value_type *block = &graph->values[node->states[0]].type;
        const double token =
            (double)berth_dtype_bytes(block->dtype, (uint64_t)berth_type_elements(block, 1, 1)) /
            BERTH_OP_BLOCK;
        bytes += 2 * token * (double)one->context;
    }
    return is_output_only ? written : bytes + written;
}

double berth_op_case_again(const berth_op_case *one, const berth_graph *graph) {
    return one->is_read_twice ? bytes_of(graph, last_op(graph)->inputs[0], one->tokens) : 0;
}
