// SPDX-License-Identifier: Apache-2.0
// StaticSinkAttention: attention in which every token also sees learned keys and values that stand
// before the first token of its sequence.
// Inputs queries [tokens, num_heads, head_size], keys and values [tokens, num_kv_heads, head_size]
// (both absent: the cache is only read); the last two dimensions also as one. Output like queries.
// Attributes: num_heads, num_kv_heads (num_heads), head_size, scale, sink_len, sliding_window (0).
// Parameters: sink_key, sink_value [sink_len, num_kv_heads, head_size].
// vLLM writes the sinks into blocks of the cache and puts these before every block table. Here they
// stay parameters, so no block is spent and no table changed; sink_len may be any number.
#include "linear/mixer.h"

static berth_value split(const berth_mixer *mixer, berth_value x, int64_t heads, int64_t size) {
    return x == BERTH_VALUE_NONE || mixer->builder->type(mixer->builder, x)->ndim == 3
               ? x
               : berth_mixer_split(mixer, x, heads, size);
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_mixer mixer = berth_mixer_of(builder, call);
    const int64_t heads = berth_call_i64(call, "num_heads", 0);
    const berth_kv_cache cache = {
        .size = sizeof(berth_kv_cache),
        .layer = call->prefix,
        .num_heads = heads,
        .num_kv_heads = berth_call_i64(call, "num_kv_heads", heads),
        .head_size = berth_call_i64(call, "head_size", 0),
        .sliding_window = berth_call_i64(call, "sliding_window", 0),
    };
    const berth_mixer_weight sinks = {
        .name = "sink_key",
        .shape = {berth_call_i64(call, "sink_len", 0), cache.num_kv_heads, cache.head_size},
        .ndim = 3,
        .is_vector = 1, // like all that meets the query
        .is_whole = 1,
    };
    berth_mixer_weight values = sinks;
    values.name = "sink_value";
    builder->kv_cache(builder, &cache);
    const berth_value query = split(&mixer, call->inputs[0], heads, cache.head_size);
    const berth_value key = split(&mixer, call->inputs[1], cache.num_kv_heads, cache.head_size);
    const berth_value value = split(&mixer, call->inputs[2], cache.num_kv_heads, cache.head_size);
    const berth_value y = BERTH_EMIT(
        builder, "paged_attention", .prefix = call->prefix,
        BERTH_INPUTS(query, key, value, BERTH_VALUE_NONE, BERTH_VALUE_NONE,
                     berth_mixer_parameter(&mixer, sinks), berth_mixer_parameter(&mixer, values),
                     builder->kv_scale(builder, call->prefix, 0),
                     builder->kv_scale(builder, call->prefix, 1)),
        BERTH_ATTRIBUTES(BERTH_F64("scale", berth_call_f64(call, "scale", 1)),
                         BERTH_I64("sliding_window", cache.sliding_window)));
    call->outputs[0] =
        builder->type(builder, call->inputs[0])->ndim == 3 ? y : berth_mixer_join(&mixer, y);
}

const berth_layer berth_layer_static_sink_attention = {
    .size = sizeof(berth_layer),
    .name = "StaticSinkAttention",
    .build = build,
};
