// SPDX-License-Identifier: Apache-2.0
// Attention: causal softmax(scale * q k^T) v of every head over the tokens of its own sequence.
// Keys and values go into the layer's paged cache first, so a sequence may come in pieces.
// Inputs queries [tokens, num_heads, head_size], keys and values [tokens, num_kv_heads, head_size],
// the last two dimensions also as one, optionally sinks [num_heads], one more logit per head that
// has no value; output [tokens, num_heads * head_size].
// Attributes: num_heads, num_kv_heads, head_size, scale, sliding_window (0: none), chunk_size (0:
// none; a token sees those of its own chunk instead), logits_soft_cap (0: none).
// Without keys and values the cache is another Attention's, whose prefix this one has.
#include <berth/layer.h>

// x as [tokens, heads, head_size].
static berth_value split(berth_builder *builder, berth_value x, int64_t heads, int64_t head_size) {
    if (x == BERTH_VALUE_NONE) {
        return x;
    }
    const berth_dim dims[] = {
        BERTH_DIM_TOKENS,
        BERTH_DIM_CONST(heads),
        BERTH_DIM_CONST(head_size),
    };
    return builder->type(builder, x)->ndim == 3 ? x : builder->reshape(builder, x, dims, 3);
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_kv_cache cache = {
        .size = sizeof(berth_kv_cache),
        .layer = call->prefix,
        .num_heads = berth_call_i64(call, "num_heads", 0),
        .num_kv_heads = berth_call_i64(call, "num_kv_heads", 0),
        .head_size = berth_call_i64(call, "head_size", 0),
        .sliding_window = berth_call_i64(call, "sliding_window", 0),
        .chunk_size = berth_call_i64(call, "chunk_size", 0),
    };
    const berth_attribute *const attributes[] = {
        BERTH_F64("scale", berth_call_f64(call, "scale", 1)),
        BERTH_I64("sliding_window", cache.sliding_window),
        BERTH_F64("logits_soft_cap", berth_call_f64(call, "logits_soft_cap", 0)),
        BERTH_I64("chunk_size", cache.chunk_size),
    };
    if (call->inputs[1] != BERTH_VALUE_NONE) {
        builder->kv_cache(builder, &cache);
    }
    const berth_value query = split(builder, call->inputs[0], cache.num_heads, cache.head_size);
    const berth_value key = split(builder, call->inputs[1], cache.num_kv_heads, cache.head_size);
    const berth_value value = split(builder, call->inputs[2], cache.num_kv_heads, cache.head_size);
    const berth_value y = BERTH_EMIT(
        builder, "paged_attention", .prefix = call->prefix,
        BERTH_INPUTS(query, key, value, call->inputs[3], BERTH_VALUE_NONE, BERTH_VALUE_NONE,
                     BERTH_VALUE_NONE, builder->kv_scale(builder, call->prefix, 0),
                     builder->kv_scale(builder, call->prefix, 1)),
        .attributes = attributes, .attribute_count = cache.chunk_size > 0 ? 4 : 3);
    const berth_dim flat[] = {
        BERTH_DIM_TOKENS,
        BERTH_DIM_CONST(cache.num_heads * cache.head_size),
    };
    call->outputs[0] = builder->reshape(builder, y, flat, 2);
}

const berth_layer berth_layer_attention = {
    .size = sizeof(berth_layer),
    .name = "Attention",
    .build = build,
};
