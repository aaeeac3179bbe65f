// SPDX-License-Identifier: Apache-2.0
// The one table of how golden files meet our ops and layers. A file without a row is an op of the
// file's name whose inputs, states and attributes have the names of the file.
#include <string.h>

#include "cli/ops_check_rows.h"

berth_check_row berth_check_row_of(const char *file) {
    for (size_t i = 0; i < berth_check_row_count; ++i) {
        if (strcmp(berth_check_rows[i].file, file) == 0) {
            return berth_check_rows[i];
        }
    }
    return (berth_check_row){.file = file};
}

// Why a macro: clang-format 14 crashes on rows in braces that differ in the number of members.
#define ROW(...)                                                                                   \
    { __VA_ARGS__ }
#define NAMES(...)                                                                                 \
    { __VA_ARGS__ }
#define IMPLIED_WIDTH                                                                              \
    { "hidden_size", "x", -1 }
#define IMPLIED_CHANNELS                                                                           \
    {"in_channels", "x", 1}, {"out_channels", "weight", 0}, {                                      \
        "bias", "bias", BERTH_CHECK_PRESENT                                                        \
    }

#define SHARD(theirs, id)                                                                          \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (theirs), .to = ".weight", .shard = (id)        \
    }

static const berth_weight_rule *const linear_rules[] = {
    SHARD(".loaded_weight_0", "0"), SHARD(".loaded_weight_1", "1"), SHARD(".loaded_q", "q"),
    SHARD(".loaded_k", "k"),        SHARD(".loaded_v", "v"),        SHARD(".loaded_weight_2", "2"),
    SHARD(".loaded_weight_3", "3"), SHARD(".loaded_weight_4", "4"), SHARD(".loaded_weight_5", "5"),
    SHARD(".loaded_weight_6", "6"), SHARD(".loaded_weight_7", "7"),
};

const berth_check_row berth_check_rows[] = {
    ROW(.file = "dual_chunk_rotary_embedding", .run = berth_check_dual_chunk),
    ROW(.file = "conv2d", .implied = NAMES(IMPLIED_CHANNELS), .prepare = berth_check_convolution),
    ROW(.file = "conv3d", .implied = NAMES(IMPLIED_CHANNELS), .prepare = berth_check_convolution),
    ROW(.file = "fused_moe",
        .entries = NAMES("unquantized_fused_moe", "modular_fused_moe", "transformers_fused_moe")),
    ROW(.file = "fused_rms_norm_gated",
        .implied = NAMES(IMPLIED_WIDTH, {"elementwise_affine", "weight", BERTH_CHECK_PRESENT})),
    ROW(.file = "gate_linear", .layer = "GateLinear", .operands = NAMES("x"),
        .attributes =
            NAMES({"input_size", "input_size"}, {"output_size", "output_size"}, {"bias", "bias"},
                  {"force_fp32_compute", "force_fp32_compute"}, {"out_dtype", "out_dtype"})),
    ROW(.file = "gelu_and_mul_sparse", .run = berth_check_sparse),
    ROW(.file = "gemma_rms_norm", .implied = NAMES(IMPLIED_WIDTH)),
    ROW(.file = "layer_norm",
        .implied = NAMES(IMPLIED_WIDTH, {"elementwise_affine", "weight", BERTH_CHECK_PRESENT},
                         {"bias", "bias", BERTH_CHECK_ALLOWED})),
    ROW(.file = "linear", .is_class_layer = true, .operands = NAMES("x"),
        .inputs = NAMES({"loaded_weight", "weight"}, {"loaded_bias", "bias"}),
        .weight_rules = linear_rules, .weight_rule_count = BERTH_COUNT(linear_rules),
        .attributes =
            NAMES({"input_size", "input_size"}, {"output_size", "output_size"}, {"bias", "bias"},
                  {"hidden_size", "input_size"}, {"output_sizes", "output_sizes"},
                  {"reduce_results", "reduce_results"}, {"head_size", "head_size"},
                  {"total_num_heads", "total_num_heads"},
                  {"total_num_kv_heads", "total_num_kv_heads"}, {"v_head_size", "v_head_size"},
                  {"gather_output", "gather_output"}, {"input_is_parallel", "input_is_parallel"},
                  {"disable_tp", "disable_tp"}, {"tp_size", "tp_size"}, {"tp_rank", "tp_rank"}),
        .run = berth_check_linear),
    ROW(.file = "logits_processor", .layer = "LogitsProcessor", .operands = NAMES("hidden_states"),
        .inputs = NAMES({"lm_head_weight", "weight"}, {"embedding_bias", "bias"}),
        .attributes = NAMES({"vocab_size", "num_embeddings"}, {"org_vocab_size", "org_vocab_size"},
                            {"scale", "scale"}, {"soft_cap", "soft_cap"},
                            {"logits_as_input", "logits_as_input"}),
        .prepare = berth_check_head),
    ROW(.file = "mamba_mixer", .layer = "MambaMixer", .operands = NAMES("hidden_states"),
        .states = NAMES("conv_state", "ssm_state"),
        .inputs = NAMES({"conv1d_weight", "conv1d.weight"}, {"conv1d_bias", "conv1d.bias"},
                        {"in_proj_weight", "in_proj.weight"}, {"in_proj_bias", "in_proj.bias"},
                        {"out_proj_bias", "out_proj.bias"}, {"x_proj_weight", "x_proj.weight"},
                        {"dt_proj_weight", "dt_proj.weight"}, {"dt_proj_bias", "dt_proj.bias"},
                        {"out_proj_weight", "out_proj.weight"},
                        {"dt_layernorm_weight", "dt_layernorm.weight"},
                        {"b_layernorm_weight", "b_layernorm.weight"},
                        {"c_layernorm_weight", "c_layernorm.weight"}),
        .attributes =
            NAMES({"hidden_size", "hidden_size"}, {"ssm_state_size", "ssm_state_size"},
                  {"conv_kernel_size", "conv_kernel_size"},
                  {"intermediate_size", "intermediate_size"}, {"time_step_rank", "time_step_rank"},
                  {"use_conv_bias", "use_conv_bias"}, {"use_bias", "use_bias"},
                  {"use_rms_norm", "use_rms_norm"}, {"rms_norm_has_weight", "rms_norm_has_weight"},
                  {"rms_norm_eps", "rms_norm_eps"}, {"activation", "activation"}),
        .prepare = berth_check_sequences),
    ROW(.file = "mamba_mixer2", .layer = "MambaMixer2",
        .operands = NAMES("hidden_states", "mup_vector"),
        .states = NAMES("conv_state", "ssm_state"),
        .inputs = NAMES({"conv1d_weight", "conv1d.weight"}, {"conv1d_bias", "conv1d.bias"},
                        {"in_proj_weight", "in_proj.weight"}, {"in_proj_bias", "in_proj.bias"},
                        {"out_proj_bias", "out_proj.bias"}, {"out_proj_weight", "out_proj.weight"},
                        {"norm_weight", "norm.weight"}),
        .attributes = NAMES(
            {"hidden_size", "hidden_size"}, {"ssm_state_size", "ssm_state_size"},
            {"conv_kernel_size", "conv_kernel_size"}, {"intermediate_size", "intermediate_size"},
            {"use_conv_bias", "use_conv_bias"}, {"use_bias", "use_bias"}, {"n_groups", "n_groups"},
            {"num_heads", "num_heads"}, {"head_dim", "head_dim"}, {"rms_norm_eps", "rms_norm_eps"},
            {"activation", "activation"}, {"use_rms_norm", "use_rms_norm"},
            {"chunk_size", "chunk_size"}),
        .prepare = berth_check_sequences),
    ROW(.file = "mhc", .is_class_op = true),
    ROW(.file = "minimax_text01_rmsnorm_tp", .implied = NAMES(IMPLIED_WIDTH)),
    ROW(.file = "mla", .implied = NAMES({"num_heads", "query", 1}, {"kv_lora_rank", "c_kv", 1},
                                        {"qk_rope_head_dim", "k_pe", 1})),
    ROW(.file = "mla_decode",
        .implied = NAMES({"num_heads", "query", 1}, {"block_size", "kv_cache", 1})),
    ROW(.file = "multi_head_latent_attention", .layer = "MultiHeadLatentAttentionWrapper",
        .operands = NAMES("positions", "hidden_states", "llama_4_scaling"),
        .inputs =
            NAMES({"kv_a_layernorm_weight", "kv_a_layernorm.weight"},
                  {"kv_b_proj_weight", "kv_b_proj.weight"}, {"o_proj_weight", "o_proj.weight"},
                  {"fused_qkv_a_proj_weight", "fused_qkv_a_proj.weight"},
                  {"q_b_proj_weight", "q_b_proj.weight"},
                  {"q_a_layernorm_weight", "q_a_layernorm.weight"},
                  {"kv_a_proj_with_mqa_weight", "kv_a_proj_with_mqa.weight"},
                  {"q_proj_weight", "q_proj.weight"}),
        .attributes = NAMES(
            {"hidden_size", "hidden_size"}, {"num_heads", "num_heads"}, {"scale", "scale"},
            {"qk_nope_head_dim", "qk_nope_head_dim"}, {"qk_rope_head_dim", "qk_rope_head_dim"},
            {"v_head_dim", "v_head_dim"}, {"q_lora_rank", "q_lora_rank"},
            {"kv_lora_rank", "kv_lora_rank"}, {"rms_norm_eps", "rms_norm_eps"},
            {"is_neox_style", "is_neox_style"}, {"max_position", "max_position"}, {"base", "base"},
            {"factor", "factor"}, {"mscale", "mscale"}, {"mscale_all_dim", "mscale_all_dim"},
            {"original_max_position_embeddings", "original_max_position_embeddings"}),
        .prepare = berth_check_latent),
    ROW(.file = "paged_attention",
        .implied = NAMES({"num_heads", "query", 1}, {"num_kv_heads", "key_cache", 2},
                         {"head_size", "query", 2}, {"block_size", "key_cache", 1})),
    ROW(.file = "quant_fp8", .run = berth_check_quant_fp8),
    ROW(.file = "rel_pos_attention", .layer = "RelPosAttention", .operands = NAMES("x"),
        .inputs = NAMES({"qkv_weight", "qkv.weight"}, {"qkv_bias", "qkv.bias"},
                        {"proj_weight", "proj.weight"}, {"proj_bias", "proj.bias"}),
        .attributes = NAMES({"dim", "dim"}, {"num_heads", "num_heads"}, {"qkv_bias", "qkv_bias"},
                            {"use_rel_pos", "use_rel_pos"}, {"input_size", "input_size"})),
    ROW(.file = "rms_norm",
        .implied = NAMES(IMPLIED_WIDTH, {"has_weight", "weight", BERTH_CHECK_PRESENT})),
    ROW(.file = "rms_norm_gated", .implied = NAMES(IMPLIED_WIDTH)),
    ROW(.file = "rotary_embedding",
        .attributes = NAMES({"max_position_embeddings", "max_position"}), .run = berth_check_rope),
    ROW(.file = "short_conv", .layer = "ShortConv", .operands = NAMES("hidden_states"),
        .states = NAMES("conv_state"),
        .inputs = NAMES({"conv_weight", "conv.weight"}, {"conv_bias", "conv.bias"},
                        {"in_proj_weight", "in_proj.weight"}, {"in_proj_bias", "in_proj.bias"},
                        {"out_proj_weight", "out_proj.weight"}, {"out_proj_bias", "out_proj.bias"}),
        .attributes =
            NAMES({"dim", "dim"}, {"conv_L_cache", "conv_L_cache"}, {"conv_bias", "conv_bias"}),
        .prepare = berth_check_sequences),
    ROW(.file = "static_sink_attention", .layer = "StaticSinkAttention", .operands = NAMES("query"),
        .states = NAMES("key_cache", "value_cache"),
        .attributes = NAMES({"num_heads", "num_heads"}, {"num_kv_heads", "num_kv_heads"},
                            {"head_size", "head_size"}, {"scale", "scale"},
                            {"sink_len", "sink_len"}, {"block_size", "block_size"})),
    ROW(.file = "varlen_attention", .op = "paged_attention",
        .implied = NAMES({"num_heads", "query", 1}, {"num_kv_heads", "key_cache", 2},
                         {"head_size", "query", 2}, {"block_size", "key_cache", 1})),
    ROW(.file = "varlen_encoder_attention",
        .implied = NAMES({"num_heads", "query", 1}, {"num_kv_heads", "key", 1},
                         {"head_size", "query", 2})),
    ROW(.file = "vocab_parallel_embedding", .layer = "VocabParallelEmbedding",
        .operands = NAMES("token_ids"),
        .inputs = NAMES({"input_", "token_ids"}, {"loaded_weight", "weight"}),
        .outputs = NAMES("output_parallel", "masked_input", "input_mask"),
        .attributes =
            NAMES({"num_embeddings", "num_embeddings"}, {"embedding_dim", "embedding_dim"},
                  {"org_num_embeddings", "org_num_embeddings"}, {"padding_size", "padding_size"},
                  {"tp_size", "tp_size"}, {"tp_rank", "tp_rank"}, {"disable_tp", "disable_tp"}),
        .loaded = berth_check_fill_added, .run = berth_check_vocabulary),
    ROW(.file = "xielu", .prepare = berth_check_xielu),
};
const size_t berth_check_row_count = BERTH_COUNT(berth_check_rows);
