// SPDX-License-Identifier: Apache-2.0
// Cases of what stands between products and mixers: element by element, choices of experts,
// residual streams, logits, ops between ranks in a world of one.
#include "base/array.h"
#include "cli/bench_op.h"

#define OP(id, label, rows, outs, ...)                                                             \
    BERTH_OP_CASE(.name = id "-" label, .op = id, .tokens = (rows), .output_count = (outs),        \
                  .text = __VA_ARGS__)
#define BETWEEN_RANKS(id) OP(id, "4096", 512, 1, "x=x[T,4096]")

// 4 streams of 4096.
#define STREAMS_FN "fn=f32[24,16384] hc_scale=f32[3] hc_base=f32[24] "
#define STREAMS                                                                                    \
    "rms_eps=1e-6 hc_pre_eps=1e-6 hc_sinkhorn_eps=1e-6 hc_post_mult_value=2 sinkhorn_repeat=20 "
#define STREAMS_LEFT                                                                               \
    "x=x[T,4096] residual=x[T,4,4096] post_layer_mix=f32[T,4,1] comb_res_mix=f32[T,4,4] "
// Of a product of 24 outputs, and the sums of streams.
#define STREAMS_FLOPS (64 * (2.0 * 24 * 16384 + 2.0 * 16384))

static const berth_op_case cases[] = {
    OP("add", "4096", 512, 1, "a=x[T,4096] b=x[T,4096]"),
    OP("mul", "4096", 512, 1, "a=x[T,4096] b=x[T,4096]"),
    OP("scale_columns", "4096", 512, 1, "x=x[T,4096] weight=x[4096]"),
    OP("scale_rows", "32x128", 512, 1, "x=x[T,32,128] scale=x[T,1]"),
    OP("match_magnitude", "4096", 512, 1, "x=x[T,4096] like=x[T,4096] least=1e-5"),
    OP("mix_rows", "4x4096", 512, 1,
       "base=x[T,4096] coefficients=x[T,4] x0=x[T,4096] x1=x[T,4096] x2=x[T,4096] x3=x[T,4096]"),
    OP("cast", "4096", 512, 1, "x=f32[T,4096] dtype=bf16"),
    OP("dual_chunk_rotary_embedding", "32x128", 512, 2,
       "positions=i32[T]<4096 query=x[T,32,128] key=x[T,8,128] rotary_dim=128 "
       "max_position_embeddings=8192 chunk_size=1024 local_size=128",
       .gate = 0.85),
    OP("scale_logits", "128256", 16, 1, "x=x[T,128256] scale=0.5 soft_cap=30"),
    OP("argmax", "128256", 16, 1, "x=x[T,128256]"),
    OP("sample", "128256", 16, 1,
       "logits=x[T,128256](-8,8) temperature=f64[T]:1..1.5 top_p=f64[T]:0..0.95 "
       "min_p=f64[T]:0..0.05 top_k=i64[T]:0..100 seed=i64[T]<1000 index=i64[T]<50",
       .is_whole = true), // options are spread over all rows
    OP("sampling_min_p", "128256", 16, 1, "logits=f32[T,128256](-8,8) min_p=f32[T](0,0.2)"),
    OP("sampling_top_k_top_p", "128256", 16, 1,
       "logits=f32[T,128256](-8,8) k=i32[T]:50..50 p=f32[T](0.8,0.95)"),
    OP("sampling_penalties", "128256", 16, 1,
       "logits=f32[T,128256](-8,8) prompt_token_ids=i32[T,1024]<128256 "
       "output_token_ids=i32[T,256]<128256 presence_penalties=f32[T](0,1) "
       "frequency_penalties=f32[T](0,1) repetition_penalties=f32[T](1,1.5)"),
    OP("vocab_parallel_mask", "65536", 512, 2,
       "token_ids=i32[128T]<128256 org_vocab_start_index=0 org_vocab_end_index=64128"),
    OP("local_expert_ids", "128", 512, 1, "topk_ids=i32[128T,8]<128 first=0 count=64"),
    OP("topk_softmax", "8of128", 512, 2, "gating_output=x[8T,128] topk=8 renormalize=1"),
    OP("grouped_topk", "8of256", 512, 2,
       "gating_output=x[8T,256] e_score_correction_bias=f32[256] topk=8 renormalize=1 "
       "num_expert_group=8 topk_group=4 scoring_func=sigmoid routed_scaling_factor=2.5"),
    OP("moe_prepare", "2048", 512, 3,
       "x=x[T,2048] topk_weights=f32[T,8](0,1) topk_ids=i32[T,8]<64 num_local_experts=64",
       .is_whole = true),
    OP("moe_finalize", "2048", 512, 1,
       "expert_y=x[8T,2048] topk_weights=f32[T,8](0,1) slots=i32[T,8]<8T", .is_whole = true),
    OP("quant_int8", "4096", 512, 2, "x=x[T,4096]", .gate = 0.85),
    OP("quant_nvfp4", "4096", 512, 2, "x=x[T,4096] global_scale=f32[1](300,301)", .gate = 0.85),
    OP("dequantize", "4096", 512, 1, "x=i8[T,4096]<13 scale=f32[T,256](0.01,0.02)"),
    OP("mhc_pre", "4x4096", 64, 3, "residual=x[T,4,4096] " STREAMS_FN STREAMS,
       .flops = STREAMS_FLOPS),
    OP("mhc_post", "4x4096", 64, 1, STREAMS_LEFT),
    OP("mhc_fused_post_pre", "4x4096", 64, 4, STREAMS_LEFT STREAMS_FN STREAMS,
       .flops = STREAMS_FLOPS),
    OP("hc_head", "4x4096", 64, 1,
       "hidden_states=x[T,4,4096] hc_fn=f32[4,16384] hc_scale=f32[1] hc_base=f32[4] "
       "rms_norm_eps=1e-6 hc_eps=1e-6"),
    BETWEEN_RANKS("all_gather"),
    BETWEEN_RANKS("all_reduce"),
    BETWEEN_RANKS("broadcast"),
    BETWEEN_RANKS("gather"),
    BETWEEN_RANKS("recv"),
    BETWEEN_RANKS("reduce_scatter"),
    BETWEEN_RANKS("send"),
};
const berth_op_table berth_op_elements = {cases, BERTH_COUNT(cases)};
