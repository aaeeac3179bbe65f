// SPDX-License-Identifier: Apache-2.0
// Input: the numbers of a decoder. Output: its graph, layer by layer. Shapes: T tokens, H heads,
// K key heads, D elements of a head.
#include "decoder.h"

#include <math.h>

// The norm's y; *residual becomes its sum with x. The first norm has nothing to add to.
static berth_value norm(berth_builder *b, const berth_decoder *decoder, const char *name,
                        berth_value x, berth_value *residual) {
    const berth_value weight =
        berth_build_vector(b, berth_build_name(b, "%s.weight", name), decoder->hidden_size);
    if (*residual == BERTH_VALUE_NONE) {
        *residual = x;
        return BERTH_EMIT(b, "rms_norm", .prefix = name, BERTH_INPUTS(x, BERTH_VALUE_NONE, weight),
                          BERTH_ATTRIBUTES(BERTH_F64("eps", decoder->norm_eps)));
    }
    berth_value results[2] = {0};
    BERTH_EMIT(b, "rms_norm", .prefix = name, BERTH_INPUTS(x, *residual, weight),
               BERTH_ATTRIBUTES(BERTH_F64("eps", decoder->norm_eps)), BERTH_OUTPUTS(results));
    *residual = results[1];
    return results[0];
}

// x [T, heads * D] as [T, heads, D].
static berth_value split(berth_builder *b, const berth_decoder *decoder, berth_value x,
                         int64_t heads) {
    const berth_dim dims[] = {
        BERTH_DIM_TOKENS,
        BERTH_DIM_CONST(heads),
        BERTH_DIM_CONST(decoder->head_size),
    };
    return b->reshape(b, x, dims, 3);
}

// A norm of every head for itself; x and the result [T, heads, D].
static berth_value head_norm(berth_builder *b, const berth_decoder *decoder, const char *name,
                             berth_value x) {
    const berth_value weight =
        berth_build_vector(b, berth_build_name(b, "%s.weight", name), decoder->head_size);
    return BERTH_EMIT(b, "rms_norm", .prefix = name, BERTH_INPUTS(x, BERTH_VALUE_NONE, weight),
                      BERTH_ATTRIBUTES(BERTH_F64("eps", decoder->norm_eps)));
}

// Turns query [T, H, D] and key [T, K, D] by their tokens' positions.
static void rotate(berth_builder *b, const berth_decoder *decoder, const char *name,
                   berth_value query_key[2]) {
    const berth_attribute *attributes[BERTH_DECODER_ROPE_MAX];
    for (uint64_t i = 0; i < decoder->rope_count; ++i) {
        attributes[i] = &decoder->rope[i];
    }
    const berth_value positions = b->input(b, "positions");
    BERTH_EMIT(b, "rotary_embedding", .prefix = name,
               BERTH_INPUTS(positions, query_key[0], query_key[1]), .attributes = attributes,
               .attribute_count = decoder->rope_count, .outputs = query_key, .output_count = 2);
}

// x [T, hidden_size] as queries [T, H, D], keys [T, K, D], values [T, K * D].
static void project(berth_builder *b, const berth_decoder *decoder, const char *name, berth_value x,
                    berth_value qkv[3]) {
    BERTH_LAYER(b, "QKVParallelLinear", .prefix = berth_build_name(b, "%s.qkv_proj", name),
                BERTH_INPUTS(x),
                BERTH_ATTRIBUTES(BERTH_I64("input_size", decoder->hidden_size),
                                 BERTH_I64("head_size", decoder->head_size),
                                 BERTH_I64("total_num_heads", decoder->num_heads),
                                 BERTH_I64("total_num_kv_heads", decoder->num_kv_heads),
                                 BERTH_BOOL("bias", decoder->has_qkv_bias)),
                .outputs = qkv, .output_count = 3);
    qkv[0] = split(b, decoder, qkv[0], decoder->num_heads);
    qkv[1] = split(b, decoder, qkv[1], decoder->num_kv_heads);
    if (decoder->has_qk_norm) {
        qkv[0] = head_norm(b, decoder, berth_build_name(b, "%s.q_norm", name), qkv[0]);
        qkv[1] = head_norm(b, decoder, berth_build_name(b, "%s.k_norm", name), qkv[1]);
    }
}

// x and the result [T, hidden_size]; `window` 0: none.
static berth_value attention(berth_builder *b, const berth_decoder *decoder, const char *name,
                             berth_value x, int64_t window) {
    berth_value qkv[3] = {0};
    project(b, decoder, name, x, qkv);
    rotate(b, decoder, berth_build_name(b, "%s.rotary_emb", name), qkv);
    const berth_value y =
        BERTH_LAYER(b, "Attention", .prefix = berth_build_name(b, "%s.attn", name),
                    BERTH_INPUTS(qkv[0], qkv[1], qkv[2]),
                    BERTH_ATTRIBUTES(BERTH_I64("num_heads", decoder->num_heads),
                                     BERTH_I64("num_kv_heads", decoder->num_kv_heads),
                                     BERTH_I64("head_size", decoder->head_size),
                                     BERTH_F64("scale", 1 / sqrt((double)decoder->head_size)),
                                     BERTH_I64("sliding_window", window)));
    return BERTH_LAYER(
        b, "RowParallelLinear", .prefix = berth_build_name(b, "%s.o_proj", name), BERTH_INPUTS(y),
        BERTH_ATTRIBUTES(BERTH_I64("input_size", decoder->num_heads * decoder->head_size),
                         BERTH_I64("output_size", decoder->hidden_size),
                         BERTH_BOOL("bias", decoder->has_output_bias)));
}

// down(silu(gate(x)) * up(x)); x and the result [T, hidden_size].
static berth_value mlp(berth_builder *b, const berth_decoder *decoder, const char *name,
                       berth_value x) {
    const int64_t size = decoder->intermediate_size;
    const int64_t sizes[] = {size, size};
    const berth_value gate_up =
        BERTH_LAYER(b, "MergedColumnParallelLinear",
                    .prefix = berth_build_name(b, "%s.gate_up_proj", name), BERTH_INPUTS(x),
                    BERTH_ATTRIBUTES(BERTH_I64("input_size", decoder->hidden_size),
                                     BERTH_I64S("output_sizes", sizes, 2),
                                     BERTH_BOOL("bias", decoder->has_mlp_bias)));
    const berth_value y = BERTH_EMIT(
        b, "silu_and_mul", .prefix = berth_build_name(b, "%s.act_fn", name), BERTH_INPUTS(gate_up));
    return BERTH_LAYER(b, "RowParallelLinear", .prefix = berth_build_name(b, "%s.down_proj", name),
                       BERTH_INPUTS(y),
                       BERTH_ATTRIBUTES(BERTH_I64("input_size", size),
                                        BERTH_I64("output_size", decoder->hidden_size),
                                        BERTH_BOOL("bias", decoder->has_mlp_bias)));
}

static berth_value embed(berth_builder *b, const berth_decoder *decoder) {
    return BERTH_LAYER(
        b, "VocabParallelEmbedding", .prefix = "model.embed_tokens",
        BERTH_INPUTS(b->input(b, "token_ids")),
        BERTH_ATTRIBUTES(BERTH_I64("num_embeddings", decoder->vocab_size),
                         BERTH_I64("embedding_dim", decoder->hidden_size),
                         BERTH_TEXT("tied_to", decoder->ties_embeddings ? "lm_head" : NULL)));
}

static berth_value head(berth_builder *b, const berth_decoder *decoder, berth_value x) {
    const char *tied_to = decoder->ties_embeddings ? "model.embed_tokens" : NULL;
    return BERTH_LAYER(b, "LogitsProcessor", .prefix = "lm_head", BERTH_INPUTS(x),
                       BERTH_ATTRIBUTES(BERTH_I64("num_embeddings", decoder->vocab_size),
                                        BERTH_I64("embedding_dim", decoder->hidden_size),
                                        BERTH_TEXT("tied_to", tied_to)));
}

void berth_decoder_build(berth_builder *b, const berth_decoder *decoder) {
    const berth_model_description description = {
        .size = sizeof(berth_model_description),
        .vocab_size = decoder->vocab_size,
        .hidden_size = decoder->hidden_size,
        .max_model_len = decoder->context_length,
        .layer_count = decoder->layer_count,
    };
    b->describe(b, &description);
    berth_value residual = BERTH_VALUE_NONE;
    berth_value x = embed(b, decoder);
    for (int64_t i = 0; i < decoder->layer_count; ++i) {
        const char *name = berth_build_name(b, "model.layers.%lld", (long long)i);
        x = norm(b, decoder, berth_build_name(b, "%s.input_layernorm", name), x, &residual);
        x = attention(b, decoder, berth_build_name(b, "%s.self_attn", name), x,
                      berth_decoder_window(b, decoder, i));
        x = norm(b, decoder, berth_build_name(b, "%s.post_attention_layernorm", name), x,
                 &residual);
        x = mlp(b, decoder, berth_build_name(b, "%s.mlp", name), x);
    }
    x = norm(b, decoder, "model.norm", x, &residual);
    b->output(b, "logits", head(b, decoder, x));
}

#define RULE(from_text, to_text, shard_id)                                                         \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (from_text), .to = (to_text),                   \
        .shard = (shard_id),                                                                       \
    }

const berth_weight_rule *const berth_decoder_rules[BERTH_DECODER_RULES] = {
    RULE(".q_proj.", ".qkv_proj.", "q"),
    RULE(".k_proj.", ".qkv_proj.", "k"),
    RULE(".v_proj.", ".qkv_proj.", "v"),
    RULE(".gate_proj.", ".gate_up_proj.", "0"),
    RULE(".up_proj.", ".gate_up_proj.", "1"),
    RULE(".rotary_emb.inv_freq", NULL, NULL), // old files hold what follows from rope_theta
};
