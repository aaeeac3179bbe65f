// SPDX-License-Identifier: Apache-2.0
// Cases of ops on rows: activations, norms, ropes, quantization, look-ups.
#include "base/array.h"
#include "cli/bench_op.h"

// An op on rows: x and vectors of its width in the order that the case says.
static berth_value emit_rows(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    berth_value inputs[BERTH_MAX_INPUTS];
    berth_value results[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    size_t count = 0;
    size_t taken = 0;
    for (const char *what = graph->of->inputs; *what; ++what) {
        const char name[] = {*what, (char)('0' + count), 0};
        inputs[count++] =
            *what == 'x' ? x[taken++]
                         : berth_op_parameter(graph, name, graph->size.dtype, 0, graph->of->in);
    }
    const berth_value y =
        BERTH_OP_EMIT(graph, graph->of->op, .inputs = inputs, .input_count = count,
                      .outputs = results, .output_count = graph->of->output_count);
    outs[0] = results[1];
    return y;
}

static berth_value emit_embedding(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)x, (void)outs;
    return berth_op_look_up(
        graph, berth_op_parameter(graph, "table", BERTH_DTYPE_BF16, graph->of->in, graph->of->out));
}

static berth_value emit_rotary(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    const int64_t size = graph->of->in;
    const berth_value positions = berth_graph_input(graph->builder, "positions");
    berth_value results[2];
    const berth_value y =
        BERTH_OP_EMIT(graph, "rotary_embedding",
                      BERTH_INPUTS(positions, berth_op_heads(graph, x[0], graph->of->out),
                                   berth_op_heads(graph, x[1], graph->of->x_widths[1] / size)),
                      BERTH_ATTRIBUTES(BERTH_I64("rotary_dim", size),
                                       BERTH_I64("max_position", 2 * BERTH_OP_CONTEXT)),
                      BERTH_OUTPUTS(results));
    outs[0] = results[1];
    return y;
}

static berth_value emit_select_rows(berth_op_graph *graph, const berth_value *x,
                                    berth_value *outs) {
    (void)outs;
    const berth_value rows = berth_graph_input(graph->builder, "logits_rows");
    return BERTH_OP_EMIT(graph, "select_rows", BERTH_INPUTS(x[0], rows));
}

static berth_value emit_contiguous(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)outs;
    const berth_value half = berth_graph_slice(graph->builder, x[0], 1, 0, graph->of->out);
    return BERTH_OP_EMIT(graph, "contiguous", BERTH_INPUTS(half));
}

// ---- the table ----------------------------------------------------------------------------------

// Rows of one width; of a gated one x is twice as wide, a residual is a second x and comes out
// again.
#define ROWS(label, id, order, xs, width, ...)                                                     \
    BERTH_OP_CASE(.name = label, .op = id, .tokens = 512, .in = (width), .emit = emit_rows,        \
                  .inputs = (order), .x_count = (xs), .x_widths = {(width), (width)}, __VA_ARGS__)
#define UNARY(id) ROWS(id "-4096", id, "x", 1, 4096, .output_count = 1)
#define GATED(id) ROWS(id "-14336", id, "x", 1, 28672, .output_count = 1)

static const berth_op_case cases[] = {
    BERTH_OP_CASE(.name = "embedding-4096", .op = "embedding", .tokens = 512, .out = 4096,
                  .in = BERTH_OP_TOKENS, .emit = emit_embedding, .output_count = 1),
    ROWS("rms_norm-2048", "rms_norm", "xxw", 2, 2048, .output_count = 2),
    ROWS("rms_norm-4096", "rms_norm", "xxw", 2, 4096, .output_count = 2),
    ROWS("gemma_rms_norm-4096", "gemma_rms_norm", "xwx", 2, 4096, .output_count = 2),
    ROWS("layer_norm-4096", "layer_norm", "xww", 1, 4096, .output_count = 1),
    ROWS("rms_norm_gated-4096", "rms_norm_gated", "xwx", 2, 4096, .output_count = 1),
    ROWS("fused_rms_norm_gated-4096", "fused_rms_norm_gated", "xxw", 2, 4096, .output_count = 1),
    ROWS("minimax_text01_rmsnorm_tp-4096", "minimax_text01_rmsnorm_tp", "xw", 1, 4096,
         .output_count = 1),
    UNARY("gelu"),
    UNARY("gelu_fast"),
    UNARY("gelu_new"),
    UNARY("gelu_tanh"),
    UNARY("quick_gelu"),
    UNARY("relu2"),
    GATED("silu_and_mul"),
    GATED("gelu_and_mul"),
    GATED("fatrelu_and_mul"),
    GATED("mul_and_silu"),
    GATED("situ_and_mul"),
    GATED("swigluoai_and_mul"),
    GATED("swiglustep_and_mul"),
    BERTH_OP_CASE(.name = "rotary_embedding-32x128", .op = "rotary_embedding", .tokens = 512,
                  .out = 32, .in = 128, .emit = emit_rotary, .x_count = 2, .x_widths = {4096, 1024},
                  .output_count = 2),
    BERTH_OP_CASE(.name = "select_rows-4096", .op = "select_rows", .tokens = 512, .out = 4096,
                  .emit = emit_select_rows, .x_count = 1, .x_widths = {4096}, .output_count = 1),
    BERTH_OP_CASE(.name = "contiguous-4096", .op = "contiguous", .tokens = 512, .out = 4096,
                  .emit = emit_contiguous, .x_count = 1, .x_widths = {6144}, .output_count = 1),
};
const berth_op_table berth_op_rows = {cases, BERTH_COUNT(cases)};
