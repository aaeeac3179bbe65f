// SPDX-License-Identifier: Apache-2.0
// Cases of ops that mix tokens.
#include "base/array.h"
#include "cli/bench_op.h"

static berth_value emit_attention(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)outs;
    const berth_op_case *of = graph->of;
    const berth_value_type block = berth_op_block(of, graph->size.dtype);
    const int64_t shared = of->x_widths[1] / of->in;
    berth_graph_state(graph->builder, graph->name, 0, &block);
    berth_graph_state(graph->builder, graph->name, 1, &block);
    return BERTH_OP_EMIT(graph, "paged_attention",
                         BERTH_INPUTS(berth_op_heads(graph, x[0], of->out),
                                      berth_op_heads(graph, x[1], shared),
                                      berth_op_heads(graph, x[2], shared)),
                         BERTH_ATTRIBUTES(BERTH_F64("scale", 0.088)));
}

// ---- the table ----------------------------------------------------------------------------------

static const berth_op_case cases[] = {
    BERTH_OP_CASE(.name = "paged_attention-decode", .op = "paged_attention", .tokens = 1,
                  .context = BERTH_OP_CONTEXT - 1, .out = 32, .in = 128, .emit = emit_attention,
                  .x_count = 3, .x_widths = {4096, 1024, 1024}, .output_count = 1),
    BERTH_OP_CASE(.name = "paged_attention-512", .op = "paged_attention", .tokens = 512, .out = 32,
                  .in = 128, .emit = emit_attention, .x_count = 3, .x_widths = {4096, 1024, 1024},
                  .output_count = 1),
};
const berth_op_table berth_op_mixers = {cases, BERTH_COUNT(cases)};
