// SPDX-License-Identifier: Apache-2.0
// Cases of products: linear, convolutions, mixtures of experts.
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

#define GATE 0.8

#define LINEAR(label, rows, n, k)                                                                  \
    BERTH_OP_CASE(.name = "linear-" label, .op = "linear", .tokens = (rows), .output_count = 1,    \
                  .flops = 2.0 * (rows) * (n) * (k), .out = (n), .in = (k), .emit = emit_linear,   \
                  .gate = GATE, .x_count = 1, .x_widths = {(k)})

// Of an image: `rows` positions, `in` columns of a patch, `n` channels made of them. Of these
// products `inside` count: the others meet padding, which nobody has to multiply.
#define CONV(id, label, rows, n, in_columns, inside, words)                                        \
    BERTH_OP_CASE(.name = id "-" label, .op = (id), .tokens = 1, .output_count = 1,                \
                  .flops = 2.0 * (rows) * (n) * (in_columns) * (inside), .text = (words),          \
                  .gate = GATE, .is_whole = true)
// Three taps over `size` positions, of which `outside` meet padding.
#define TAPS(size, outside) ((3.0 * (size) - (outside)) / (3.0 * (size)))

// Experts in bf16 over `rows` tokens, `k` experts each. Of a step of few tokens as much of the
// weights is read as experts are chosen.
#define MOE_WEIGHTS(e, n, inner, hidden, share)                                                    \
    " w13_weight=bf16[" #e "," #n "," #hidden "]*" #share " w2_weight=bf16[" #e "," #hidden        \
    "," #inner "]*" #share
#define MOE_TEXT(e, k, n, inner, hidden, share)                                                    \
    "x=x[T," #hidden "]" MOE_WEIGHTS(e, n, inner, hidden, share) " topk_weights=f32[T," #k         \
                                                                 "](0,1) topk_ids=i32[T," #k       \
                                                                 "]<" #e
#define MOE(id, label, rows, k, hidden, inner, ...)                                                \
    BERTH_OP_CASE(.name = id "-" label, .op = (id), .tokens = (rows), .output_count = 1,           \
                  .flops = 6.0 * (rows) * (k) * (hidden) * (inner), .gate = GATE,                  \
                  .text = __VA_ARGS__)
// 32 experts of 1024 and 512, 8 a token.
#define MOE_SMALL(share) MOE_TEXT(32, 8, 1024, 512, 1024, share)
// One rank of eight: 8 experts of 4096 and 14336, 2 a token.
#define MOE_RANK(share) MOE_TEXT(8, 2, 3584, 1792, 4096, share)
// 8 experts of 1024 and 512, 2 a token, in codes.
#define MOE_I8(share)                                                                              \
    "x=x[T,1024] w13_weight=i8[8,1024,1024]<100*" #share                                           \
    " w13_scale=f32[8,1024,1](0.001,0.002)*" #share " w2_weight=i8[8,1024,512]<100*" #share        \
    " w2_scale=f32[8,1024,1](0.001,0.002)*" #share                                                 \
    " topk_weights=f32[T,2](0,1) topk_ids=i32[T,2]<8 code=i8 group_shape=1,-1 input=token"

// Weights of codes, by codes and by activations.
#define CODES(id, label, rows, n, k, words)                                                        \
    BERTH_OP_CASE(.name = id "-" label "-" #n "x" #k "-" #rows, .op = (id), .tokens = (rows),      \
                  .output_count = 1, .flops = 2.0 * (rows) * (n) * (k), .text = (words))
#define INT8(rows, n, k)                                                                           \
    CODES("scaled_linear", "int8", rows, n, k,                                                     \
          "x=i8[T," #k "]<100 x_scale=f32[T,1](0.01,0.02) weight=i8[" #n "," #k                    \
          "]<100 weight_scale=bf16[" #n ",1](0.01,0.02) group_shape=1,-1 dtype=f32")
#define FP8(rows, n, k)                                                                            \
    CODES("scaled_linear", "fp8", rows, n, k,                                                      \
          "x=f8_e4m3fn[T," #k "]<100 x_scale=f32[T,1](0.01,0.02) weight=f8_e4m3fn[" #n "," #k      \
          "]<100 weight_scale=bf16[" #n ",1](0.01,0.02) group_shape=1,-1 dtype=f32")
#define FP8_BLOCKS(rows, n, k, down, across)                                                       \
    CODES("scaled_linear", "fp8-blocks", rows, n, k,                                               \
          "x=f8_e4m3fn[T," #k "]<100 x_scale=f32[T," #across "](0.01,0.02) weight=f8_e4m3fn[" #n   \
          "," #k "]<100 weight_scale=f32[" #down "," #across                                       \
          "](0.01,0.02) group_shape=128,128 dtype=bf16")
#define FOUR_BITS(rows, n, k, half, group, groups)                                                 \
    CODES("packed_linear", "u4g" #group, rows, n, k,                                               \
          "x=x[T," #k "] weight=u8[" #n "," #half "]<256 weight_scale=bf16[" #n "," #groups        \
          "](0.01,0.02) code=u4 group_shape=1," #group)
#define EIGHT_BITS(rows, n, k)                                                                     \
    CODES("packed_linear", "u8", rows, n, k,                                                       \
          "x=x[T," #k "] weight=u8[" #n "," #k "]<256 weight_scale=bf16[" #n                       \
          ",1](0.01,0.02) code=u8 group_shape=1,-1")
#define NVFP4(rows, n, k, half, groups)                                                            \
    CODES("packed_linear", "nvfp4", rows, n, k,                                                    \
          "x=x[T," #k "] weight=u8[" #n "," #half "]<256 weight_scale=bf16[" #n "," #groups        \
          "](0.01,0.02) output_scale=f32[" #n "](0.5,1) code=e2m1 group_shape=1,16")
// With what passes put before a product of a decode step.
#define BEHIND_NORM(k) "x=x[T," #k "] norm_weight=bf16[" #k "] prologue=rms_norm "
#define FUSED(rows, n, k)                                                                          \
    CODES("fused_linear", "norm", rows, n, k, BEHIND_NORM(k) "weight=bf16[" #n "," #k "]")
#define GATED(rows, n, k)                                                                          \
    CODES("linear_silu_and_mul", "gate_up", rows, n, k, "x=x[T," #k "] weight=bf16[" #n "," #k "]")
#define FUSED_FP8(rows, n, k)                                                                      \
    CODES("fused_scaled_linear", "norm-fp8", rows, n, k,                                           \
          BEHIND_NORM(k) "weight=f8_e4m3fn[" #n "," #k "]<100 weight_scale=bf16[" #n               \
                         ",1](0.01,0.02) input_group_shape=1,-1 group_shape=1,-1 dtype=f32")
#define FUSED_FOUR_BITS(rows, n, k, half, group, groups)                                           \
    CODES("fused_packed_linear", "norm-u4g" #group, rows, n, k,                                    \
          BEHIND_NORM(k) "weight=u8[" #n "," #half "]<256 weight_scale=bf16[" #n "," #groups       \
                         "](0.01,0.02) code=u4 group_shape=1," #group)
// At the widths of a model of 1.1 billion and of one of 8.
#define AT_WIDTHS(of) of(1, 2048, 2048), of(1, 14336, 4096), of(8, 14336, 4096), of(512, 4096, 4096)

static const berth_op_case cases[] = {
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
    AT_WIDTHS(INT8),
    INT8(512, 2048, 2048),
    INT8(512, 14336, 4096),
    INT8(512, 4096, 14336),
    AT_WIDTHS(FP8),
    FP8_BLOCKS(1, 14336, 4096, 112, 32),
    FP8_BLOCKS(8, 14336, 4096, 112, 32),
    FP8_BLOCKS(64, 14336, 4096, 112, 32),
    FP8_BLOCKS(512, 4096, 4096, 32, 32),
    FUSED(1, 14336, 4096),
    GATED(1, 28672, 4096),
    FUSED_FP8(1, 14336, 4096),
    FUSED_FOUR_BITS(1, 14336, 4096, 2048, 128, 32),
    FOUR_BITS(1, 2048, 2048, 1024, 32, 64),
    FOUR_BITS(1, 14336, 4096, 2048, 32, 128),
    FOUR_BITS(1, 2048, 2048, 1024, 128, 16),
    FOUR_BITS(1, 14336, 4096, 2048, 128, 32),
    FOUR_BITS(8, 14336, 4096, 2048, 128, 32),
    FOUR_BITS(512, 4096, 4096, 2048, 128, 32),
    NVFP4(1, 14336, 4096, 2048, 256),
    NVFP4(512, 4096, 4096, 2048, 256),
    AT_WIDTHS(EIGHT_BITS),
    CONV("conv2d", "patches-14", 576, 1024, 588, 1,
         "x=x[T,3,336,336] weight=x[1024,3,14,14] stride=14"),
    CONV("conv2d", "1x1", 4096, 256, 768, 1, "x=x[T,768,64,64] weight=x[256,768,1,1]"),
    CONV("conv2d", "3x3", 1024, 256, 2304, TAPS(32, 2) * TAPS(32, 2),
         "x=x[T,256,32,32] weight=x[256,256,3,3] padding=1"),
    CONV("conv2d", "3x3-half", 1024, 512, 2304, TAPS(32, 1) * TAPS(32, 1),
         "x=x[T,256,64,64] weight=x[512,256,3,3] padding=1 stride=2"),
    CONV("conv3d", "patches-2x14", 256, 1280, 1176, 1,
         "x=x[256,3,2,14,14] weight=x[1280,3,2,14,14] stride=2,14,14"),
    CONV("conv3d", "3x3x3", 1024, 128, 3456, TAPS(32, 2) * TAPS(32, 2),
         "x=x[T,128,3,32,32] weight=x[128,128,3,3,3] padding=0,1,1"),
    CONV("conv3d", "3x3x3-padded", 1024, 128, 3456, TAPS(4, 2) * TAPS(16, 2) * TAPS(16, 2),
         "x=x[T,128,4,16,16] weight=x[128,128,3,3,3] padding=1"),
    MOE("fused_moe", "32x512-1", 1, 8, 1024, 512, MOE_SMALL(0.25)),
    MOE("fused_moe", "32x512-64", 64, 8, 1024, 512, MOE_SMALL(1)),
    MOE("fused_moe", "32x512-512", 512, 8, 1024, 512, MOE_SMALL(1)),
    MOE("fused_moe", "8x1792-1", 1, 2, 4096, 1792, MOE_RANK(0.25)),
    MOE("fused_moe", "8x1792-64", 64, 2, 4096, 1792, MOE_RANK(1)),
    MOE("fused_moe", "8x1792-512", 512, 2, 4096, 1792, MOE_RANK(1)),
    MOE("unquantized_fused_moe", "32x512-512", 512, 8, 1024, 512, MOE_SMALL(1)),
    MOE("modular_fused_moe", "32x512-512", 512, 8, 1024, 512, MOE_SMALL(1)),
    MOE("transformers_fused_moe", "32x512-512", 512, 8, 1024, 512, MOE_SMALL(1)),
    MOE("moe_experts", "32x512-64", 64, 8, 1024, 512,
        "expert_x=x[8T,1024] expert_first=i32[33]:0..8T" MOE_WEIGHTS(32, 1024, 512, 1024, 1),
        .is_whole = true),
    MOE("quantized_experts", "8x512-1", 1, 2, 1024, 512, MOE_I8(0.25)),
    MOE("quantized_experts", "8x512-512", 512, 2, 1024, 512, MOE_I8(1)),
    MOE("quantized_experts", "8x512-512-e4m3", 512, 2, 1024, 512,
        "x=x[T,1024] w13_weight=f8_e4m3fn[8,1024,1024]<100 w13_scale=f32[8,8,8](0.001,0.002) "
        "w2_weight=f8_e4m3fn[8,1024,512]<100 w2_scale=f32[8,8,4](0.001,0.002) "
        "topk_weights=f32[T,2](0,1) "
        "topk_ids=i32[T,2]<8 code=e4m3 group_shape=128,128 input=group"),
    MOE("quantized_experts", "8x512-512-e2m1", 512, 2, 1024, 512,
        "x=x[T,1024] w13_weight=u8[8,1024,512]<256 w13_scale=f32[8,1024,32](0.01,0.02) "
        "w2_weight=u8[8,1024,256]<256 w2_scale=f32[8,1024,16](0.01,0.02) "
        "topk_weights=f32[T,2](0,1) topk_ids=i32[T,2]<8 code=e2m1 group_shape=1,32 input=float"),
    MOE("quantized_experts", "32x2880-1-e2m1", 1, 4, 2880, 2880, // gpt-oss-20b
        "x=x[T,2880] w13_weight=u8[32,5760,1440]<256*0.125 "
        "w13_scale=bf16[32,5760,90](0.01,0.02)*0.125 w2_weight=u8[32,2880,1440]<256*0.125 "
        "w2_scale=bf16[32,2880,90](0.01,0.02)*0.125 "
        "topk_weights=f32[T,4](0,1) topk_ids=i32[T,4]<32 code=e2m1 group_shape=1,32 input=float"),
    MOE("quantized_experts", "32x768-1-e4m3", 1, 8, 2048, 768, // Qwen3-30B-A3B, a fourth of it
        "x=x[T,2048] w13_weight=f8_e4m3fn[32,1536,2048]<100*0.25 "
        "w13_scale=f32[32,12,16](0.001,0.002)*0.25 w2_weight=f8_e4m3fn[32,2048,768]<100*0.25 "
        "w2_scale=f32[32,16,6](0.001,0.002)*0.25 topk_weights=f32[T,8](0,1) "
        "topk_ids=i32[T,8]<32 code=e4m3 group_shape=128,128 input=group"),
    MOE("quantized_experts", "32x768-512-e4m3", 512, 8, 2048, 768,
        "x=x[T,2048] w13_weight=f8_e4m3fn[32,1536,2048]<100 "
        "w13_scale=f32[32,12,16](0.001,0.002) w2_weight=f8_e4m3fn[32,2048,768]<100 "
        "w2_scale=f32[32,16,6](0.001,0.002) topk_weights=f32[T,8](0,1) "
        "topk_ids=i32[T,8]<32 code=e4m3 group_shape=128,128 input=group"),
    MOE("quantized_experts", "32x768-1-u4", 1, 8, 2048, 768,
        "x=x[T,2048] w13_weight=u8[32,1536,1024]<256*0.25 "
        "w13_scale=bf16[32,1536,16](0.01,0.02)*0.25 w2_weight=u8[32,2048,384]<256*0.25 "
        "w2_scale=bf16[32,2048,6](0.01,0.02)*0.25 topk_weights=f32[T,8](0,1) "
        "topk_ids=i32[T,8]<32 code=u4 group_shape=1,128 input=float"),
};
const berth_op_table berth_op_products = {cases, BERTH_COUNT(cases)};
