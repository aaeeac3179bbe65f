// SPDX-License-Identifier: Apache-2.0
// MultiHeadLatentAttentionWrapper: DeepSeek's attention over a cache of latent rows.
// Inputs positions (absent: those of the batch), hidden states [tokens, hidden_size], and
// optionally llama_4_scaling [tokens, 1], by which the queries are multiplied; output [tokens,
// hidden_size]. Attributes: hidden_size, num_heads, scale, qk_nope_head_dim, qk_rope_head_dim,
// v_head_dim, q_lora_rank (0: queries come from one projection), kv_lora_rank, bias (0: of the
// projections to latent rows and of o_proj), rms_norm_eps (1e-6), tp_size (1), tp_rank (0), and
// those of rotary_embedding but rotary_dim; without max_position no rope. Parameters: with
// q_lora_rank fused_qkv_a_proj (shards "0": queries, "1": latents and rotated key), q_a_layernorm,
// q_b_proj, otherwise q_proj and kv_a_proj_with_mqa; kv_a_layernorm,
// kv_b_proj, o_proj. Cache: PREFIX.attn, rows of kv_lora_rank + qk_rope_head_dim.
#include "linear/mixer.h"

typedef struct sizes {
    int64_t hidden;
    int64_t heads; // of the whole model
    int64_t own;   // of this rank
    int64_t nope;
    int64_t rope;
    int64_t value;
    int64_t q_rank; // 0: none
    int64_t rank;   // of keys and values
    int has_bias;
} sizes;

static sizes read_sizes(const berth_mixer *mixer) {
    const berth_call *call = mixer->call;
    sizes out = {
        .hidden = berth_call_i64(call, "hidden_size", 0),
        .heads = berth_call_i64(call, "num_heads", 0),
        .nope = berth_call_i64(call, "qk_nope_head_dim", 0),
        .rope = berth_call_i64(call, "qk_rope_head_dim", 0),
        .value = berth_call_i64(call, "v_head_dim", 0),
        .q_rank = berth_call_i64(call, "q_lora_rank", 0),
        .rank = berth_call_i64(call, "kv_lora_rank", 0),
        .has_bias = berth_call_i64(call, "bias", 0) != 0,
    };
    out.own = berth_world_part(mixer->builder, call, mixer->world, "num_heads", out.heads).extent;
    return out;
}

// What is not rotary_embedding's.
static const char *const own[] = {
    "hidden_size",      "num_heads",  "scale",       "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank",
    "rms_norm_eps",     "tp_size",    "tp_rank",     "bias",
};

// Queries [tokens, heads · (nope + rope)], and latents beside the rotated key.
static void project(const berth_mixer *mixer, const sizes *size, berth_value x,
                    berth_value out[2]) {
    const int64_t keys = size->rank + size->rope;
    berth_mixer_linear queries = {
        .layer_class = "ColumnParallelLinear",
        .name = size->q_rank > 0 ? "q_b_proj" : "q_proj",
        .input_size = size->q_rank > 0 ? size->q_rank : size->hidden,
        .output_size = size->heads * (size->nope + size->rope),
    };
    if (size->q_rank < 1) {
        const berth_mixer_linear latents = {
            .layer_class = "ReplicatedLinear",
            .name = "kv_a_proj_with_mqa",
            .input_size = size->hidden,
            .output_size = keys,
            .has_bias = size->has_bias,
        };
        out[0] = berth_mixer_project(mixer, queries, x);
        out[1] = berth_mixer_project(mixer, latents, x);
        return;
    }
    const int64_t both[] = {size->q_rank, keys};
    const berth_value all = BERTH_LAYER(
        mixer->builder, "MergedColumnParallelLinear",
        .prefix = berth_mixer_name(mixer, "fused_qkv_a_proj"), BERTH_INPUTS(x),
        BERTH_ATTRIBUTES(BERTH_I64("input_size", size->hidden), BERTH_I64S("output_sizes", both, 2),
                         BERTH_BOOL("disable_tp", 1), BERTH_BOOL("bias", size->has_bias)));
    const berth_value latent = berth_mixer_columns(mixer, all, 0, size->q_rank);
    out[0] =
        berth_mixer_project(mixer, queries, berth_mixer_norm(mixer, "q_a_layernorm", latent, 1));
    out[1] = berth_mixer_columns(mixer, all, size->q_rank, keys);
}

// Turns query [tokens, heads, rope] and key [tokens, 1, rope].
static void rotate(const berth_mixer *mixer, const sizes *size, berth_value query_key[2]) {
    berth_builder *builder = mixer->builder;
    const berth_attribute *attributes[BERTH_MAX_HANDED];
    const berth_attribute *width = BERTH_I64("rotary_dim", size->rope);
    uint64_t count = berth_call_without(mixer->call, own, sizeof own / sizeof own[0], attributes);
    if (berth_call_i64(mixer->call, "max_position", 0) < 1) {
        return;
    }
    attributes[count++] = width;
    const berth_value given = mixer->call->inputs[0];
    const berth_value positions =
        given == BERTH_VALUE_NONE ? builder->input(builder, "positions") : given;
    BERTH_EMIT(builder, "rotary_embedding", .prefix = berth_mixer_name(mixer, "rotary_emb"),
               BERTH_INPUTS(positions, query_key[0], query_key[1]), .attributes = attributes,
               .attribute_count = count, .outputs = query_key, .output_count = 2);
}

// A query or a part of it, [tokens, heads, width], times its token's number.
static berth_value scale_query(const berth_mixer *mixer, berth_value query) {
    const berth_call *call = mixer->call;
    const berth_value by = call->input_count > 2 ? call->inputs[2] : BERTH_VALUE_NONE;
    return by == BERTH_VALUE_NONE
               ? query
               : BERTH_EMIT(mixer->builder, "scale_rows", .prefix = berth_mixer_name(mixer, "attn"),
                            BERTH_INPUTS(query, by));
}

// The normalised latent as keys and values are made of it, and the weight that makes them.
static berth_value compress(const berth_mixer *mixer, const sizes *size, berth_value latent,
                            berth_value *out_weight) {
    const int64_t whole = size->heads * (size->nope + size->value);
    const berth_part part =
        berth_world_part(mixer->builder, mixer->call, mixer->world, "kv_b_proj.weight", whole);
    const berth_linear linear = {
        .size = sizeof(berth_linear),
        .prefix = berth_mixer_name(mixer, "kv_b_proj"),
        .layer_class = "ColumnParallelLinear",
        .input_size = size->rank,
        .output_size = part.extent,
        .stored_output_offset = part.offset,
        .stored_output_extent = part.extent < whole ? whole : 0,
    };
    return mixer->builder->linear_matrix(
        mixer->builder, &linear, berth_mixer_norm(mixer, "kv_a_layernorm", latent, 1), out_weight);
}

static berth_value attend(const berth_mixer *mixer, const sizes *size, berth_value query,
                          berth_value keys) {
    berth_builder *builder = mixer->builder;
    const berth_kv_cache cache = {
        .size = sizeof(berth_kv_cache),
        .layer = berth_mixer_name(mixer, "attn"),
        .num_heads = size->own,
        .num_kv_heads = 1,
        .head_size = size->rank + size->rope,
        .is_latent = 1,
    };
    const berth_value all = berth_mixer_split(mixer, query, size->own, size->nope + size->rope);
    const berth_value latent = berth_mixer_columns(mixer, keys, 0, size->rank);
    const berth_value rotated = berth_mixer_columns(mixer, keys, size->rank, size->rope);
    berth_value pair[2] = {
        builder->slice(builder, all, 2, size->nope, size->rope),
        berth_mixer_split(mixer, rotated, 1, size->rope),
    };
    rotate(mixer, size, pair);
    berth_value weight = BERTH_VALUE_NONE;
    const berth_value c_kv = compress(mixer, size, latent, &weight);
    builder->kv_cache(builder, &cache);
    return BERTH_EMIT(
        builder, "mla", .prefix = cache.layer,
        BERTH_INPUTS(scale_query(mixer, builder->slice(builder, all, 2, 0, size->nope)), c_kv,
                     berth_mixer_join(mixer, pair[1]), weight, scale_query(mixer, pair[0])),
        BERTH_ATTRIBUTES(BERTH_F64("scale", berth_call_f64(mixer->call, "scale", 1)),
                         BERTH_I64("v_head_dim", size->value)));
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_mixer mixer = berth_mixer_of(builder, call);
    const sizes size = read_sizes(&mixer);
    const berth_mixer_linear linear = {
        .layer_class = "RowParallelLinear",
        .name = "o_proj",
        .input_size = size.heads * size.value,
        .output_size = size.hidden,
        .has_bias = size.has_bias,
    };
    berth_value projected[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    project(&mixer, &size, call->inputs[1], projected);
    const berth_value y = attend(&mixer, &size, projected[0], projected[1]);
    call->outputs[0] = berth_mixer_project(&mixer, linear, berth_mixer_join(&mixer, y));
}

const berth_layer berth_layer_multi_head_latent_attention_wrapper = {
    .size = sizeof(berth_layer),
    .name = "MultiHeadLatentAttentionWrapper",
    .build = build,
};
