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

const berth_check_row berth_check_rows[] = {
    ROW(.file = "dual_chunk_rotary_embedding", .run = berth_check_dual_chunk),
    ROW(.file = "conv2d", .implied = NAMES(IMPLIED_CHANNELS), .prepare = berth_check_convolution),
    ROW(.file = "conv3d", .implied = NAMES(IMPLIED_CHANNELS), .prepare = berth_check_convolution),
    ROW(.file = "fused_moe",
        .entries = NAMES("unquantized_fused_moe", "modular_fused_moe", "transformers_fused_moe")),
    ROW(.file = "fused_rms_norm_gated",
        .implied = NAMES(IMPLIED_WIDTH, {"elementwise_affine", "weight", BERTH_CHECK_PRESENT})),
    ROW(.file = "gelu_and_mul_sparse", .run = berth_check_sparse),
    ROW(.file = "gemma_rms_norm", .implied = NAMES(IMPLIED_WIDTH)),
    ROW(.file = "layer_norm",
        .implied = NAMES(IMPLIED_WIDTH, {"elementwise_affine", "weight", BERTH_CHECK_PRESENT},
                         {"bias", "bias", BERTH_CHECK_ALLOWED})),
    ROW(.file = "linear", .is_class_layer = true, .operands = NAMES("x"),
        .inputs = NAMES({"loaded_weight", "weight"}),
        .attributes =
            NAMES({"input_size", "input_size"}, {"output_size", "output_size"}, {"bias", "bias"})),
    ROW(.file = "mhc", .is_class_op = true),
    ROW(.file = "minimax_text01_rmsnorm_tp", .implied = NAMES(IMPLIED_WIDTH)),
    ROW(.file = "mla", .implied = NAMES({"num_heads", "query", 1}, {"kv_lora_rank", "c_kv", 1},
                                        {"qk_rope_head_dim", "k_pe", 1})),
    ROW(.file = "mla_decode",
        .implied = NAMES({"num_heads", "query", 1}, {"block_size", "kv_cache", 1})),
    ROW(.file = "paged_attention",
        .implied = NAMES({"num_heads", "query", 1}, {"num_kv_heads", "key_cache", 2},
                         {"head_size", "query", 2}, {"block_size", "key_cache", 1})),
    ROW(.file = "quant_fp8", .run = berth_check_quant_fp8),
    ROW(.file = "rms_norm",
        .implied = NAMES(IMPLIED_WIDTH, {"has_weight", "weight", BERTH_CHECK_PRESENT})),
    ROW(.file = "rms_norm_gated", .implied = NAMES(IMPLIED_WIDTH)),
    ROW(.file = "rotary_embedding",
        .attributes = NAMES({"max_position_embeddings", "max_position"}), .run = berth_check_rope),
    ROW(.file = "varlen_attention", .op = "paged_attention",
        .implied = NAMES({"num_heads", "query", 1}, {"num_kv_heads", "key_cache", 2},
                         {"head_size", "query", 2}, {"block_size", "key_cache", 1})),
    ROW(.file = "varlen_encoder_attention",
        .implied = NAMES({"num_heads", "query", 1}, {"num_kv_heads", "key", 1},
                         {"head_size", "query", 2})),
    ROW(.file = "vocab_parallel_embedding", .layer = "VocabParallelEmbedding",
        .operands = NAMES("token_ids"),
        .inputs = NAMES({"input_", "token_ids"}, {"loaded_weight", "weight"}),
        .attributes =
            NAMES({"num_embeddings", "num_embeddings"}, {"embedding_dim", "embedding_dim"})),
};
const size_t berth_check_row_count = BERTH_COUNT(berth_check_rows);
