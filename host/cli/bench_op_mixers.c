// SPDX-License-Identifier: Apache-2.0
// Cases of ops that mix tokens: attention, recurrences, convolutions over time. Where a state is
// named, its share says how much of it is read and written.
#include "base/array.h"
#include "cli/bench_op.h"

// Query, key and value by heads, and the caches of the copy.
static void open_heads(const berth_op_graph *graph, const berth_value *x, berth_value *heads) {
    const berth_op_case *of = graph->of;
    const berth_value_type block = berth_op_block(of, graph->size.dtype);
    const int64_t shared = of->x_widths[1] / of->in;
    berth_graph_state(graph->builder, graph->name, 0, &block);
    berth_graph_state(graph->builder, graph->name, 1, &block);
    for (int i = 0; i < 3; ++i) {
        heads[i] = berth_op_heads(graph, x[i], i == 0 ? of->out : shared);
    }
}

static berth_value emit_attention(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    berth_value heads[3];
    (void)outs;
    open_heads(graph, x, heads);
    return BERTH_OP_EMIT(graph, "paged_attention", BERTH_INPUTS(heads[0], heads[1], heads[2]),
                         BERTH_ATTRIBUTES(BERTH_F64("scale", 0.088)));
}

static berth_value emit_rotary(berth_op_graph *graph, const berth_value *x, berth_value *outs) {
    const berth_value none = BERTH_VALUE_NONE;
    const berth_value positions = berth_graph_input(graph->builder, "positions");
    berth_value heads[3];
    (void)outs;
    open_heads(graph, x, heads);
    return BERTH_OP_EMIT(graph, "rotary_attention",
                         BERTH_INPUTS(positions, heads[0], heads[1], none, none, none, heads[2]),
                         BERTH_ATTRIBUTES(BERTH_I64("rotary_dim", graph->of->in),
                                          BERTH_I64("max_position", 2 * BERTH_OP_CONTEXT),
                                          BERTH_F64("scale", 0.088)));
}

// ---- the table ----------------------------------------------------------------------------------

// 32 heads of 128 over 8; `seen` positions a token, what is behind it left out.
#define PAGED(id, label, rows, before, seen, emitter)                                              \
    BERTH_OP_CASE(.name = id "-" label, .op = (id), .tokens = (rows), .context = (before),         \
                  .is_paged = true, .output_count = 1, .flops = 4.0 * (rows) * (seen)*4096,        \
                  .out = 32, .in = 128, .emit = (emitter), .x_count = 3,                           \
                  .x_widths = {4096, 1024, 1024})
#define PAGED_DECODE(id, emitter)                                                                  \
    PAGED(id, "decode", 1, BERTH_OP_CONTEXT - 1, BERTH_OP_CONTEXT, emitter)
#define MIX(id, label, rows, work, ...)                                                            \
    BERTH_OP_CASE(.name = id "-" label, .op = id, .tokens = (rows), .output_count = 1,             \
                  .flops = (work), .text = __VA_ARGS__)

// 16 heads of 128 and 64 columns from latents of 512.
#define MLA                                                                                        \
    "query=x[T,16,192] c_kv=x[T,512] k_pe=x[T,64] kv_b_proj_weight=bf16[4096,512] scale=0.0722 "   \
    "v_head_dim=128 kv_cache=x[129,16,576]"

static const berth_op_case cases[] = {
    PAGED_DECODE("paged_attention", emit_attention),
    PAGED("paged_attention", "512", 512, 0, 256.5, emit_attention),
    PAGED_DECODE("rotary_attention", emit_rotary),
    PAGED("rotary_attention", "512", 512, 0, 256.5, emit_rotary),
    MIX("mla", "512", 512, 2.0 * 512 * 4096 * 512 + 2.0 * 16 * 512 * 256.5 * (192 + 128),
        MLA "*0.5"),
    MIX("mla", "decode", 1, 4.0 * 16 * 128 * 512 + 2.0 * 16 * 2048 * (576 + 512), MLA,
        .context = BERTH_OP_CONTEXT - 1),
    MIX("mla_decode", "8x2048", 8, 2.0 * 8 * 16 * 2048 * (576 + 512),
        "query=x[8,16,576] block_table=i32[8,128]:0..1023 seq_lens=i32[8]:2048..2048 "
        "kv_cache=x[1024,16,576] scale=0.0722 kv_lora_rank=512"),
    MIX("mla_decode_concat_quant_fp8", "64", 64, 0,
        "decode_ql_nope=x[T,128,512] decode_q_pe=x[T,128,64] scale=f32[1](0.002,0.003)"),
    MIX("mm_encoder_attn", "16x80-512", 512, 4.0 * 512 * 512 * 1280,
        "query=x[1,T,1280] key=x[1,T,1280] value=x[1,T,1280] num_heads=16 head_size=80",
        .is_whole = true),
    MIX("varlen_encoder_attention", "12x64-512", 512, 4.0 * 512 * 512 * 768,
        "query=x[T,12,64] key=x[T,12,64] value=x[T,12,64] scale=0.125", .is_whole = true),
    MIX("rel_pos_attn", "12x64-14x14", 4, 4.0 * 12 * 196 * (4.0 * 196 * 64 + 2.0 * 28 * 64),
        "qkv=x[T,14,14,2304] rel_pos_h=x[27,64] rel_pos_w=x[27,64] num_heads=12"),
    BERTH_OP_CASE(.name = "merge_attn_states-32x128", .op = "merge_attn_states", .tokens = 512,
                  .output_count = 2, .is_whole = true,
                  .text = "prefix_output=x[T,32,128] prefix_lse=f32[32,T] "
                          "suffix_output=x[T,32,128] suffix_lse=f32[32,T]"),
    MIX("selective_scan", "8192x16", 512, 8.0 * 512 * 8192 * 16,
        "u=x[T,8192] delta=x[T,8192] A=f32[8192,16](-1,0) B=x[T,16] C=x[T,16] D=f32[8192] "
        "z=x[T,8192] delta_bias=f32[8192] ssm_states=f32[3,8192,16]*0.33 delta_softplus=1 "
        "channels_last=1"),
    MIX("selective_state_update", "8192x16", 64, 8.0 * 64 * 8192 * 16,
        "x=x[T,8192] dt=x[T,8192] A=f32[8192,16](-1,0) B=x[T,16] C=x[T,16] D=f32[8192] "
        "z=x[T,8192] dt_bias=f32[8192] state=f32[T,8192,16]*2 dt_softplus=1"),
    MIX("ssd", "80x64x128", 512, 5.0 * 512 * 80 * 64 * 128,
        "x=x[T,80,64] dt=x[T,80] A=f32[80](-1,0) B=x[T,1,128] C=x[T,1,128] D=f32[80] "
        "dt_bias=f32[80] ssm_states=f32[3,80,64,128]*0.33 dt_softplus=1"),
    MIX("causal_conv1d", "8192", 512, 0,
        "x=x[T,8192] weight=x[8192,4] bias=x[8192] conv_states=x[3,3,8192]*0.33 activation=silu "
        "channels_last=1"),
    MIX("causal_conv1d_update", "8192", 64, 0,
        "x=x[T,8192] weight=x[8192,4] bias=x[8192] conv_state=x[T,8192,3]*2 activation=silu"),
    MIX("gated_delta_rule", "32x128x128", 128, 7.0 * 128 * 32 * 128 * 128,
        "query=x[T,16,128] key=x[T,16,128] value=x[T,32,128] a=x[T,32] b=x[T,32] "
        "A_log=f32[32](0,1) dt_bias=f32[32] ssm_states=f32[3,32,128,128]*0.33"),
    MIX("lightning_attention", "16x128x128", 128, 5.0 * 16 * 128 * 128 * 128,
        "q=x[1,16,T,128] k=x[1,16,T,128] v=x[1,16,T,128] ed=f32[16](0,1) "
        "kv_history=f32[1,16,128,128]*2",
        .is_whole = true),
};
const berth_op_table berth_op_mixers = {cases, BERTH_COUNT(cases)};
