// SPDX-License-Identifier: Apache-2.0
// Cases of ops on rows: activations, norms, ropes, quantization, look-ups.
#include <stdio.h>

#include "base/array.h"
#include "cli/bench_op.h"

static berth_value emit_vector(const berth_op_graph *graph, char what, size_t input) {
    const char name[] = {what, (char)('0' + input), 0};
    if (what == '0') {
        const berth_value_type number = {.size = sizeof number, .dtype = graph->size.dtype};
        char unique[64];
        (void)snprintf(unique, sizeof unique, "%s.%s", graph->name, name);
        return berth_graph_parameter(graph->builder, unique, &number);
    }
    const bool is_scale = what == 's' || what == 'c';
    return berth_op_parameter(graph, name, is_scale ? BERTH_DTYPE_F32 : graph->size.dtype, 0,
                              what == '1' || what == 's' ? 1 : graph->of->in);
}

// An op on rows: its inputs in the order that the case says, vectors as wide as x.
static berth_value emit_rows(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    const berth_op_case *of = graph->of;
    berth_value inputs[BERTH_MAX_INPUTS];
    berth_value results[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    size_t count = 0;
    size_t taken = 0;
    for (const char *what = of->inputs; *what; ++what, ++count) {
        inputs[count] = *what == 'x'   ? x[taken++]
                        : *what == '-' ? BERTH_VALUE_NONE
                                       : emit_vector(graph, *what, count);
    }
    const berth_value y =
        BERTH_OP_EMIT(graph, of->op, .inputs = inputs, .input_count = count, .outputs = results,
                      .output_count = of->output_count, .attributes = of->attributes,
                      .attribute_count = of->attribute_count);
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

static berth_value emit_apply_rotary(berth_op_graph *graph, const berth_value *x,
                                     berth_value *outs) {
    (void)outs;
    const int64_t pairs = graph->of->in / 2;
    const berth_value cosines = berth_op_look_up(
        graph, berth_op_parameter(graph, "cos", graph->size.dtype, BERTH_OP_TOKENS, pairs));
    const berth_value sines = berth_op_look_up(
        graph, berth_op_parameter(graph, "sin", graph->size.dtype, BERTH_OP_TOKENS, pairs));
    return BERTH_OP_EMIT(graph, "apply_rotary_emb",
                         BERTH_INPUTS(berth_op_heads(graph, x[0], graph->of->out), cosines, sines),
                         .attributes = graph->of->attributes,
                         .attribute_count = graph->of->attribute_count);
}

// Rows of the ids that another rank has become zeros: every other one of the timed tokens.
static berth_value emit_mask_rows(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)outs;
    berth_value masked[2];
    (void)BERTH_OP_EMIT(graph, "vocab_parallel_mask",
                        BERTH_INPUTS(berth_graph_input(graph->builder, "token_ids")),
                        BERTH_ATTRIBUTES(BERTH_I64("org_vocab_start_index", 0),
                                         BERTH_I64("org_vocab_end_index", BERTH_OP_TOKENS / 2)),
                        BERTH_OUTPUTS(masked));
    return BERTH_OP_EMIT(graph, "mask_rows", BERTH_INPUTS(x[0], masked[1]));
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
#define GATE 0.85

#define CASE(label, id, rows, order, xs, width, ...)                                               \
    BERTH_OP_CASE(.name = (label), .op = id, .tokens = (rows), .in = (width), .emit = emit_rows,   \
                  .inputs = (order), .x_count = (xs), .x_widths = {(width), (width)},              \
                  .gate = GATE, __VA_ARGS__)
#define ROWS(label, id, order, xs, width, ...)                                                     \
    CASE(label, id, BERTH_OP_TOKENS, order, xs, width, __VA_ARGS__)
#define UNARY(id) ROWS(id "-4096", id, "x", 1, 4096, .output_count = 1)
#define GATED(id) ROWS(id "-14336", id, "x", 1, 28672, .output_count = 1)
#define GATED_BY(id, ...)                                                                          \
    ROWS(id "-14336", id, "x", 1, 28672, .output_count = 1, BERTH_ATTRIBUTES(__VA_ARGS__))
#define MIXER2(label, width, groups)                                                               \
    ROWS("mixer2_gated_rms_norm-" label, "mixer2_gated_rms_norm", "xxw", 2, width,                 \
         .output_count = 1,                                                                        \
         BERTH_ATTRIBUTES(BERTH_I64("full_hidden_size", (width)),                                  \
                          BERTH_I64("full_n_groups", (groups))))
#define QUANT(label, order, width, is_static, rows, columns)                                       \
    ROWS("quant_fp8-" label, "quant_fp8", order, 1, width, .output_count = 2,                      \
         .is_whole = !(is_static) && (rows) < 0, .is_read_twice = !(is_static) && (rows) < 0,      \
         BERTH_ATTRIBUTES(BERTH_BOOL("static", is_static),                                         \
                          BERTH_I64S("group_shape", ((const int64_t[]){(rows), (columns)}), 2)))
#define ROPE(label, rows)                                                                          \
    BERTH_OP_CASE(.name = (label), .op = "rotary_embedding", .tokens = (rows), .out = 32,          \
                  .in = 128, .emit = emit_rotary, .x_count = 2, .x_widths = {4096, 1024},          \
                  .gate = GATE, .output_count = 2)
#define APPLY_ROPE(label, ...)                                                                     \
    BERTH_OP_CASE(.name = (label), .op = "apply_rotary_emb", .tokens = 512, .out = 32, .in = 128,  \
                  .emit = emit_apply_rotary, .gate = GATE, .x_count = 1, .x_widths = {4096},       \
                  .output_count = 1, BERTH_ATTRIBUTES(__VA_ARGS__))
#define EMBEDDING(label, rows)                                                                     \
    BERTH_OP_CASE(.name = (label), .op = "embedding", .tokens = (rows), .out = 4096,               \
                  .in = BERTH_OP_TOKENS, .emit = emit_embedding, .gate = GATE, .output_count = 1)

static const berth_op_case cases[] = {
    EMBEDDING("embedding-4096", 512),
    BERTH_OP_CASE(.name = "mask_rows-4096", .op = "mask_rows", .tokens = 512, .out = 4096,
                  .emit = emit_mask_rows, .x_count = 1, .x_widths = {4096}, .output_count = 1),
    ROWS("rms_norm-2048", "rms_norm", "xxw", 2, 2048, .output_count = 2),
    ROWS("rms_norm-4096", "rms_norm", "xxw", 2, 4096, .output_count = 2),
    CASE("rms_norm-4096-1", "rms_norm", 1, "xxw", 2, 4096, .output_count = 2),
    ROWS("rms_norm-alone-4096", "rms_norm", "x-w", 1, 4096, .output_count = 1),
    ROWS("gemma_rms_norm-4096", "gemma_rms_norm", "xwx", 2, 4096, .output_count = 2),
    ROWS("gemma_rms_norm-alone-4096", "gemma_rms_norm", "xw", 1, 4096, .output_count = 1),
    ROWS("layer_norm-4096", "layer_norm", "xww", 1, 4096, .output_count = 1),
    ROWS("rms_norm_gated-4096", "rms_norm_gated", "xwx", 2, 4096, .output_count = 1),
    MIXER2("4096", 4096, 1),
    MIXER2("8x512", 4096, 8),
    ROWS("fused_rms_norm_gated-4096", "fused_rms_norm_gated", "xxw", 2, 4096, .output_count = 1),
    ROWS("minimax_text01_rmsnorm_tp-4096", "minimax_text01_rmsnorm_tp", "xw", 1, 4096,
         .output_count = 1),
    UNARY("gelu"),
    UNARY("gelu_fast"),
    UNARY("gelu_new"),
    UNARY("gelu_tanh"),
    UNARY("quick_gelu"),
    UNARY("relu2"),
    ROWS("clamp-4096", "clamp", "x", 1, 4096, .output_count = 1,
         BERTH_ATTRIBUTES(BERTH_F64("limit", 1.0))),
    ROWS("xielu-4096", "xielu", "x1100", 1, 4096, .output_count = 1),
    GATED("silu_and_mul"),
    CASE("silu_and_mul-14336-1", "silu_and_mul", 1, "x", 1, 28672, .output_count = 1),
    GATED_BY("silu_and_mul_with_clamp", BERTH_F64("swiglu_limit", 7.0)),
    GATED("gelu_and_mul"),
    GATED_BY("gelu_and_mul_sparse", BERTH_F64("activation_sparsity", 0.95)),
    GATED("fatrelu_and_mul"),
    GATED("mul_and_silu"),
    GATED("situ_and_mul"),
    GATED("swigluoai_and_mul"),
    GATED("swiglustep_and_mul"),
    ROPE("rotary_embedding-32x128", 512),
    ROPE("rotary_embedding-32x128-1", 1),
    APPLY_ROPE("apply_rotary_emb-32x128", BERTH_BOOL("is_neox_style", 1)),
    APPLY_ROPE("apply_rotary_emb-pairs-32x128", BERTH_BOOL("is_neox_style", 0)),
    QUANT("static-tensor-4096", "xs", 4096, 1, -1, -1),
    QUANT("static-token-4096", "xs", 4096, 1, 1, -1),
    QUANT("static-channel-4096", "xc", 4096, 1, -1, 1),
    QUANT("tensor-4096", "x", 4096, 0, -1, -1),
    QUANT("token-2048", "x", 2048, 0, 1, -1),
    QUANT("token-4096", "x", 4096, 0, 1, -1),
    QUANT("group128-4096", "x", 4096, 0, 1, 128),
    QUANT("group128-14336", "x", 14336, 0, 1, 128),
    BERTH_OP_CASE(.name = "select_rows-4096", .op = "select_rows", .tokens = 512, .out = 4096,
                  .emit = emit_select_rows, .x_count = 1, .x_widths = {4096}, .output_count = 1),
    BERTH_OP_CASE(.name = "contiguous-4096", .op = "contiguous", .tokens = 512, .out = 4096,
                  .emit = emit_contiguous, .x_count = 1, .x_widths = {6144}, .output_count = 1),
};
const berth_op_table berth_op_rows = {cases, BERTH_COUNT(cases)};
