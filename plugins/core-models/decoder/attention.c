// SPDX-License-Identifier: Apache-2.0
// Input: hidden states. Output: what attention makes of them.
#include "parts.h"

#include <math.h>

static berth_value reshape(berth_builder *b, berth_value x, int64_t rows, int64_t columns) {
    const berth_dim dims[] = {
        BERTH_DIM_TOKENS,
        BERTH_DIM_CONST(rows),
        BERTH_DIM_CONST(columns),
    };
    return b->reshape(b, x, dims, 3);
}

// ---- queries, keys and values -------------------------------------------------------------------

// Queries [T, H * D], keys and values [T, K * D].
static void project(berth_builder *b, const berth_decoder *decoder, const char *name, berth_value x,
                    berth_value qkv[3]) {
    BERTH_LAYER(b, "QKVParallelLinear", .prefix = name, BERTH_INPUTS(x),
                BERTH_ATTRIBUTES(BERTH_I64("input_size", decoder->hidden_size),
                                 BERTH_I64("head_size", decoder->head_size),
                                 BERTH_I64("total_num_heads", decoder->num_heads),
                                 BERTH_I64("total_num_kv_heads", decoder->num_kv_heads),
                                 BERTH_BOOL("bias", decoder->has_qkv_bias)),
                .outputs = qkv, .output_count = 3);
}

// The same out of a tensor in which the rows of a key head stand behind those of its queries.
static void project_groups(berth_builder *b, const berth_decoder *decoder, const char *name,
                           berth_value x, berth_value qkv[3]) {
    const int64_t heads = decoder->num_heads / decoder->num_kv_heads;
    const int64_t size = decoder->head_size;
    const int64_t all = decoder->num_kv_heads * (heads + 2) * size;
    const berth_value y = BERTH_LAYER(
        b, "ColumnParallelLinear", .prefix = name, BERTH_INPUTS(x),
        BERTH_ATTRIBUTES(BERTH_I64("input_size", decoder->hidden_size),
                         BERTH_I64("output_size", all), BERTH_BOOL("bias", decoder->has_qkv_bias)));
    const berth_value groups = reshape(b, y, decoder->num_kv_heads, (heads + 2) * size);
    qkv[0] = b->slice(b, groups, 2, 0, heads * size);
    qkv[1] = b->slice(b, groups, 2, heads * size, size);
    qkv[2] = b->slice(b, groups, 2, (heads + 1) * size, size);
}

// ---- norms of queries and keys ------------------------------------------------------------------

// Every head with a weight of its own, x [T, heads, D].
static berth_value norm_own(berth_builder *b, const berth_decoder *decoder, const char *name,
                            berth_value x) {
    const berth_value_type *type = b->type(b, x);
    const int64_t shape[] = {type->ndim == 3 ? type->dims[1].b : 1, decoder->head_size};
    const berth_parameter weight = {
        .size = sizeof(berth_parameter),
        .name = berth_build_name(b, "%s.weight", name),
        .shape = shape,
        .ndim = 2,
        .is_vector = 1,
        .output_dim = -1,
        .input_dim = -1,
    };
    return BERTH_EMIT(
        b, "layer_norm", .prefix = name, BERTH_INPUTS(x, b->parameter(b, &weight)),
        BERTH_ATTRIBUTES(BERTH_F64("eps", decoder->norm_eps), BERTH_I64("weight_rows", shape[0])));
}

// x [T, heads * D] or [T, heads, D] as [T, heads, D], after the norm that it gets.
static berth_value prepare(berth_builder *b, const berth_decoder *decoder, const char *name,
                           berth_value x, int64_t heads) {
    const berth_value all =
        decoder->qk_norm == BERTH_QK_NORM_ALL ? berth_decoder_norm_of(b, decoder, name, x) : x;
    const berth_value y = reshape(b, all, heads, decoder->head_size);
    return decoder->qk_norm == BERTH_QK_NORM_HEAD       ? berth_decoder_norm_of(b, decoder, name, y)
           : decoder->qk_norm == BERTH_QK_NORM_OWN_HEAD ? norm_own(b, decoder, name, y)
                                                        : y;
}

static void clamp(berth_builder *b, const berth_decoder *decoder, const char *name,
                  berth_value qkv[3]) {
    for (int i = 0; decoder->qkv_limit > 0 && i < 3; ++i) {
        qkv[i] = BERTH_EMIT(b, "clamp", .prefix = name, BERTH_INPUTS(qkv[i]),
                            BERTH_ATTRIBUTES(BERTH_F64("limit", decoder->qkv_limit)));
    }
}

void berth_decoder_rotate(berth_builder *b, const berth_decoder *decoder, const char *name,
                          int64_t window, berth_value query_key[2]) {
    const int is_sliding = window > 0 && decoder->sliding_rope.count > 0;
    const berth_decoder_rope *rope = is_sliding ? &decoder->sliding_rope : &decoder->rope;
    const berth_attribute *attributes[BERTH_DECODER_ROPE_MAX];
    if (rope->count == 0 || (decoder->turns_sliding_only && window == 0)) {
        return;
    }
    for (uint64_t i = 0; i < rope->count; ++i) {
        attributes[i] = &rope->attributes[i];
    }
    const uint64_t outputs = query_key[1] == BERTH_VALUE_NONE ? 1 : 2;
    BERTH_EMIT(b, "rotary_embedding", .prefix = berth_build_name(b, "%s.rotary_emb", name),
               BERTH_INPUTS(b->input(b, "positions"), query_key[0], query_key[1]),
               .attributes = attributes, .attribute_count = rope->count, .outputs = query_key,
               .output_count = outputs);
}

// ---- attention ----------------------------------------------------------------------------------

static double scale_of(const berth_decoder *decoder, int64_t layer) {
    const double scale = decoder->attention_scale > 0 ? decoder->attention_scale
                                                      : 1 / sqrt((double)decoder->head_size);
    return decoder->scale_falls ? scale / (double)(layer + 1) : scale;
}

static berth_value attend(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                          const berth_value qkv[3]) {
    const char *name = berth_decoder_piece(b, decoder, layer, decoder->names->attention);
    const berth_value sinks =
        decoder->has_sinks
            ? berth_build_vector(b, berth_build_name(b, "%s.sinks", name), decoder->num_heads)
            : BERTH_VALUE_NONE;
    return BERTH_LAYER(
        b, "Attention", .prefix = berth_build_name(b, "%s.attn", name),
        BERTH_INPUTS(qkv[0], qkv[1], qkv[2], sinks),
        BERTH_ATTRIBUTES(BERTH_I64("num_heads", decoder->num_heads),
                         BERTH_I64("num_kv_heads", decoder->num_kv_heads),
                         BERTH_I64("head_size", decoder->head_size),
                         BERTH_F64("scale", scale_of(decoder, layer)),
                         BERTH_F64("logits_soft_cap", decoder->attention_soft_cap),
                         BERTH_I64("sliding_window", berth_decoder_window(b, decoder, layer))));
}

static berth_value attend_latents(berth_builder *b, const berth_decoder *decoder, const char *name,
                                  berth_value x) {
    const berth_decoder_latent *latent = &decoder->latent;
    const berth_attribute *attributes[BERTH_DECODER_ROPE_MAX + 10];
    uint64_t count = 0;
    for (uint64_t i = 1; i < decoder->rope.count; ++i) { // the first, rotary_dim, is the layer's
        attributes[count++] = &decoder->rope.attributes[i];
    }
    const berth_attribute *const own[] = {
        BERTH_I64("hidden_size", decoder->hidden_size),
        BERTH_I64("num_heads", decoder->num_heads),
        BERTH_I64("q_lora_rank", latent->q_lora_rank),
        BERTH_I64("kv_lora_rank", latent->kv_lora_rank),
        BERTH_I64("qk_nope_head_dim", latent->nope_size),
        BERTH_I64("qk_rope_head_dim", latent->rope_size),
        BERTH_I64("v_head_dim", latent->value_size),
        BERTH_BOOL("bias", latent->has_bias),
        BERTH_F64("scale", decoder->attention_scale),
        BERTH_F64("rms_norm_eps", 1e-6), // whatever config.json says of the other norms
    };
    for (uint64_t i = 0; i < sizeof own / sizeof own[0]; ++i) {
        attributes[count++] = own[i];
    }
    return BERTH_LAYER(b, "MultiHeadLatentAttentionWrapper", .prefix = name,
                       BERTH_INPUTS(BERTH_VALUE_NONE, x), .attributes = attributes,
                       .attribute_count = count);
}

berth_value berth_decoder_attention(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                                    berth_value x) {
    const berth_decoder_names *names = decoder->names;
    const char *name = berth_decoder_piece(b, decoder, layer, names->attention);
    if (decoder->latent.kv_lora_rank > 0) {
        return attend_latents(b, decoder, name, x);
    }
    berth_value qkv[3] = {0};
    (decoder->has_grouped_qkv ? project_groups : project)(
        b, decoder, berth_build_name(b, "%s.%s", name, names->qkv), x, qkv);
    qkv[0] = prepare(b, decoder, berth_build_name(b, "%s.%s", name, names->q_norm), qkv[0],
                     decoder->num_heads);
    qkv[1] = prepare(b, decoder, berth_build_name(b, "%s.%s", name, names->k_norm), qkv[1],
                     decoder->num_kv_heads);
    clamp(b, decoder, name, qkv);
    berth_decoder_rotate(b, decoder, name, berth_decoder_window(b, decoder, layer), qkv);
    return BERTH_LAYER(
        b, "RowParallelLinear",
        .prefix = berth_build_name(b, "%s.%s", name, names->attention_output),
        BERTH_INPUTS(attend(b, decoder, layer, qkv)),
        BERTH_ATTRIBUTES(BERTH_I64("input_size", decoder->num_heads * decoder->head_size),
                         BERTH_I64("output_size", decoder->hidden_size),
                         BERTH_BOOL("bias", decoder->has_output_bias)));
}
