// SPDX-License-Identifier: Apache-2.0
// Cases of products: linear.
#include "base/array.h"
#include "cli/bench_op.h"

static berth_value emit_linear(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)outs;
    const berth_op_case *of = graph->of;
    const berth_value weight =
        berth_op_parameter(graph, "weight", BERTH_DTYPE_BF16, of->out, of->in);
    return BERTH_OP_EMIT(graph, "linear", BERTH_INPUTS(x[0], weight));
}

// ---- the table ----------------------------------------------------------------------------------

#define LINEAR(label, rows, n, k)                                                                  \
    BERTH_OP_CASE(.name = "linear-" label, .op = "linear", .tokens = (rows), .out = (n),           \
                  .in = (k), .emit = emit_linear, .x_count = 1, .x_widths = {(k)},                 \
                  .output_count = 1)

static const berth_op_case cases[] = {
    LINEAR("2048x2048-1", 1, 2048, 2048),       LINEAR("2048x2048-16", 16, 2048, 2048),
    LINEAR("2048x2048-512", 512, 2048, 2048),   LINEAR("4096x4096-1", 1, 4096, 4096),
    LINEAR("4096x4096-16", 16, 4096, 4096),     LINEAR("4096x4096-512", 512, 4096, 4096),
    LINEAR("14336x4096-1", 1, 14336, 4096),     LINEAR("14336x4096-16", 16, 14336, 4096),
    LINEAR("14336x4096-512", 512, 14336, 4096), LINEAR("4096x14336-1", 1, 4096, 14336),
    LINEAR("4096x14336-16", 16, 4096, 14336),   LINEAR("4096x14336-512", 512, 4096, 14336),
};
const berth_op_table berth_op_products = {cases, BERTH_COUNT(cases)};
