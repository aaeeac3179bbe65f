// SPDX-License-Identifier: Apache-2.0
// Input: a case. Output: its graph. Every x is made by an embedding of the step's tokens, all of
// them before the first op, so that an op never finds its x in a cache.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "cli/bench_op.h"

#define TABLE_ROWS BERTH_OP_TOKENS
#define EMIT(graph, op_name, ...)                                                                  \
    berth_graph_op((graph)->builder, &(const berth_call){.size = sizeof(berth_call),               \
                                                         .name = (op_name),                        \
                                                         .prefix = (graph)->name,                  \
                                                         __VA_ARGS__})

// ---- pieces -------------------------------------------------------------------------------------

static berth_value parameter(const berth_op_graph *graph, const char *what, berth_dtype dtype,
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

static berth_value look_up(berth_op_graph *graph, berth_value table) {
    return EMIT(graph, "embedding",
                BERTH_INPUTS(berth_graph_input(graph->builder, "token_ids"), table),
                BERTH_ATTRIBUTES(BERTH_TEXT("out_dtype", berth_dtype_name(graph->dtype))));
}

static berth_value heads(const berth_op_graph *graph, berth_value x, int64_t count) {
    const berth_dim dims[] = {
        BERTH_DIM_TOKENS,
        BERTH_DIM_CONST(count),
        BERTH_DIM_CONST(graph->of->in),
    };
    return berth_graph_reshape(graph->builder, x, dims, BERTH_COUNT(dims));
}

// ---- ops ----------------------------------------------------------------------------------------

// An op on rows: x and vectors of its width in the order that the case says.
static berth_value emit_rows(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    berth_value inputs[BERTH_MAX_INPUTS];
    berth_value results[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    size_t count = 0;
    size_t taken = 0;
    for (const char *what = graph->of->inputs; *what; ++what) {
        const char name[] = {*what, (char)('0' + count), 0};
        inputs[count++] =
            *what == 'x' ? x[taken++] : parameter(graph, name, graph->dtype, 0, graph->of->in);
    }
    const berth_value y = EMIT(graph, graph->of->op, .inputs = inputs, .input_count = count,
                               .outputs = results, .output_count = graph->of->output_count);
    outs[0] = results[1];
    return y;
}

static berth_value emit_embedding(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)x, (void)outs;
    return look_up(graph,
                   parameter(graph, "table", BERTH_DTYPE_BF16, graph->of->in, graph->of->out));
}

static berth_value emit_rotary(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    const int64_t size = graph->of->in;
    const berth_value positions = berth_graph_input(graph->builder, "positions");
    berth_value results[2];
    const berth_value y = EMIT(graph, "rotary_embedding",
                               BERTH_INPUTS(positions, heads(graph, x[0], graph->of->out),
                                            heads(graph, x[1], graph->of->x_widths[1] / size)),
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
    return EMIT(graph, "select_rows", BERTH_INPUTS(x[0], rows));
}

static berth_value emit_contiguous(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)outs;
    const berth_value half = berth_graph_slice(graph->builder, x[0], 1, 0, graph->of->out);
    return EMIT(graph, "contiguous", BERTH_INPUTS(half));
}

static berth_value emit_linear(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)outs;
    const berth_op_case *of = graph->of;
    const berth_value weight = parameter(graph, "weight", BERTH_DTYPE_BF16, of->out, of->in);
    return EMIT(graph, "linear", BERTH_INPUTS(x[0], weight));
}

static berth_value_type block_type(const berth_op_case *of, berth_dtype dtype) {
    return (berth_value_type){
        .size = sizeof(berth_value_type),
        .dtype = dtype,
        .ndim = 3,
        .dims = {BERTH_DIM_CONST(BERTH_OP_BLOCK), BERTH_DIM_CONST(of->x_widths[1] / of->in),
                 BERTH_DIM_CONST(of->in)},
    };
}

static berth_value emit_attention(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    (void)outs;
    const berth_op_case *of = graph->of;
    const berth_value_type block = block_type(of, graph->dtype);
    const int64_t shared = of->x_widths[1] / of->in;
    berth_graph_state(graph->builder, graph->name, 0, &block);
    berth_graph_state(graph->builder, graph->name, 1, &block);
    return EMIT(graph, "paged_attention",
                BERTH_INPUTS(heads(graph, x[0], of->out), heads(graph, x[1], shared),
                             heads(graph, x[2], shared)),
                BERTH_ATTRIBUTES(BERTH_F64("scale", 0.088)));
}

// ---- graphs -------------------------------------------------------------------------------------

// All x of all copies, from one table for each width.
static void emit_inputs(berth_op_graph *graph, size_t copies, berth_value (*x)[3]) {
    for (size_t i = 0; i < graph->of->x_count; ++i) {
        char what[16];
        (void)snprintf(what, sizeof what, "x%zu", i);
        const berth_value table =
            parameter(graph, what, graph->dtype, TABLE_ROWS, graph->of->x_widths[i]);
        for (size_t copy = 0; copy < copies; ++copy) {
            x[copy][i] = look_up(graph, table);
        }
    }
}

static void emit_copy(berth_op_graph *graph, size_t copy, const berth_value *x) {
    berth_value outs[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    char name[32];
    (void)snprintf(graph->name, sizeof graph->name, "copy.%zu", copy);
    const berth_value y = graph->of->emit(graph, x, outs);
    (void)snprintf(name, sizeof name, "y%zu", copy);
    berth_graph_output_add(graph->builder, name, y);
    if (graph->of->output_count > 1) {
        name[0] = 'z';
        berth_graph_output_add(graph->builder, name, outs[0]);
    }
}

berth_status berth_op_graph_build(const berth_registry *registry, const berth_op_case *one,
                                  berth_dtype dtype, size_t copies, berth_graph **out_graph) {
    berth_op_graph graph = {.of = one, .dtype = dtype, .name = "inputs"};
    berth_value x[BERTH_OP_COPIES][3];
    BERTH_TRY(berth_graph_begin(registry, one->name, &graph.builder));
    emit_inputs(&graph, copies, x);
    for (size_t i = 0; i < copies; ++i) {
        emit_copy(&graph, i, x[i]);
    }
    return berth_graph_finish(graph.builder, out_graph);
}

berth_status berth_op_graph_caches(const berth_op_case *one, berth_dtype dtype, size_t copies,
                                   berth_arena *arena, berth_kv_cache_spec **out_caches) {
    const berth_value_type block = block_type(one, dtype);
    const uint64_t elements = (uint64_t)berth_type_elements(&block, 1, 1);
    *out_caches = BERTH_ARENA_ARRAY(arena, berth_kv_cache_spec, copies);
    for (size_t i = 0; i < copies && *out_caches; ++i) {
        (*out_caches)[i] = (berth_kv_cache_spec){
            .size = sizeof(berth_kv_cache_spec),
            .layer = berth_arena_printf(arena, "copy.%zu", i),
            .num_heads = one->out,
            .num_kv_heads = block.dims[1].b,
            .head_size = one->in,
            .block_size = BERTH_OP_BLOCK,
            .dtype = dtype,
            .page_bytes = 2 * berth_dtype_bytes(dtype, elements),
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

static double bytes_of(const berth_graph *graph, const berth_value *values, size_t count,
                       int64_t tokens) {
    double bytes = 0;
    for (size_t i = 0; i < count; ++i) {
        const berth_value_type *type = &graph->values[values[i]].type;
        const int64_t elements = values[i] ? berth_type_elements(type, tokens, tokens) : 0;
        bytes += (double)berth_dtype_bytes(type->dtype, (uint64_t)elements);
    }
    return bytes;
}

double berth_op_case_bytes(const berth_op_case *one, const berth_graph *graph,
                           bool is_output_only) {
    const berth_graph_node *node = last_op(graph);
    const double written = bytes_of(graph, node->outputs, node->output_count, one->tokens);
    double bytes = bytes_of(graph, node->inputs, node->input_count, one->tokens);
    if (strcmp(one->op, "embedding") == 0) { // of the table the rows that are asked for
        bytes = (double)(one->tokens * one->out) * 2;
    }
    if (one->context > 0) {
        const berth_value_type *block = &graph->values[node->states[0]].type;
        const double token =
            (double)berth_dtype_bytes(block->dtype, (uint64_t)berth_type_elements(block, 1, 1)) /
            BERTH_OP_BLOCK;
        bytes += 2 * token * (double)one->context;
    }
    return is_output_only ? written : bytes + written;
}

double berth_op_case_flops(const berth_op_case *one) {
    const double tokens = (double)one->tokens;
    if (strcmp(one->op, "linear") == 0) {
        return 2.0 * tokens * (double)one->out * (double)one->in;
    }
    if (strcmp(one->op, "paged_attention") == 0) { // what is behind a token is left out
        const double seen = (double)one->context + (tokens + 1) / 2;
        return 4.0 * tokens * seen * (double)one->out * (double)one->in;
    }
    return 0;
}

// ---- the table ----------------------------------------------------------------------------------

#define CASE(...)                                                                                  \
    { __VA_ARGS__ }
#define LINEAR(label, rows, n, k)                                                                  \
    CASE(.name = "linear-" label, .op = "linear", .tokens = (rows), .out = (n), .in = (k),         \
         .emit = emit_linear, .x_count = 1, .x_widths = {(k)}, .output_count = 1)

// Rows of one width; of a gated one x is twice as wide, a residual is a second x and comes out
// again.
#define ROWS(label, id, order, xs, width, ...)                                                     \
    CASE(.name = label, .op = id, .tokens = 512, .in = (width), .emit = emit_rows,                 \
         .inputs = (order), .x_count = (xs), .x_widths = {(width), (width)}, __VA_ARGS__)
#define UNARY(id) ROWS(id "-4096", id, "x", 1, 4096, .output_count = 1)
#define GATED(id) ROWS(id "-14336", id, "x", 1, 28672, .output_count = 1)

const berth_op_case berth_op_cases[] = {
    CASE(.name = "embedding-4096", .op = "embedding", .tokens = 512, .out = 4096, .in = TABLE_ROWS,
         .emit = emit_embedding, .output_count = 1),
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
    CASE(.name = "rotary_embedding-32x128", .op = "rotary_embedding", .tokens = 512, .out = 32,
         .in = 128, .emit = emit_rotary, .x_count = 2, .x_widths = {4096, 1024}, .output_count = 2),
    CASE(.name = "select_rows-4096", .op = "select_rows", .tokens = 512, .out = 4096,
         .emit = emit_select_rows, .x_count = 1, .x_widths = {4096}, .output_count = 1),
    CASE(.name = "contiguous-4096", .op = "contiguous", .tokens = 512, .out = 4096,
         .emit = emit_contiguous, .x_count = 1, .x_widths = {6144}, .output_count = 1),
    LINEAR("2048x2048-1", 1, 2048, 2048),
    LINEAR("2048x2048-16", 16, 2048, 2048),
    LINEAR("2048x2048-512", 512, 2048, 2048),
    LINEAR("4096x4096-1", 1, 4096, 4096),
    LINEAR("4096x4096-16", 16, 4096, 4096),
    LINEAR("4096x4096-512", 512, 4096, 4096),
    LINEAR("14336x4096-1", 1, 14336, 4096),
    LINEAR("14336x4096-16", 16, 14336, 4096),
    LINEAR("14336x4096-512", 512, 14336, 4096),
    LINEAR("4096x14336-1", 1, 4096, 14336),
    LINEAR("4096x14336-16", 16, 4096, 14336),
    LINEAR("4096x14336-512", 512, 4096, 14336),
    CASE(.name = "paged_attention-decode", .op = "paged_attention", .tokens = 1,
         .context = BERTH_OP_CONTEXT - 1, .out = 32, .in = 128, .emit = emit_attention,
         .x_count = 3, .x_widths = {4096, 1024, 1024}, .output_count = 1),
    CASE(.name = "paged_attention-512", .op = "paged_attention", .tokens = 512, .out = 32,
         .in = 128, .emit = emit_attention, .x_count = 3, .x_widths = {4096, 1024, 1024},
         .output_count = 1),
};
const size_t berth_op_case_count = BERTH_COUNT(berth_op_cases);
