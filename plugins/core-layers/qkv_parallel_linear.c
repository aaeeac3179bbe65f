// SPDX-License-Identifier: Apache-2.0
// QKVParallelLinear: queries, keys and values of an attention layer as one product; the weights
// stand one after another as the shards "q", "k", "v". Ranks divide the heads; key heads that are
// fewer than ranks belong to several of them.
// Input x [tokens, input_size]; outputs, views of one result: queries [tokens, heads * head_size],
// keys [tokens, kv heads * head_size] and values [tokens, kv heads * v_head_size] of this rank.
// Attributes: input_size, head_size, total_num_heads, total_num_kv_heads (as many), v_head_size
// (head_size), bias (0), tp_size (1), tp_rank (0), disable_tp (0).
#include "linear/linear.h"

static berth_part times(berth_part part, int64_t size) {
    return (berth_part){.offset = part.offset * size, .extent = part.extent * size};
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_world world = berth_world_of(builder, call);
    const int64_t size = berth_call_i64(call, "head_size", 0);
    const int64_t value_size = berth_call_i64(call, "v_head_size", size);
    const int64_t heads = berth_call_i64(call, "total_num_heads", 0);
    const int64_t kv_heads = berth_call_i64(call, "total_num_kv_heads", heads);
    const berth_head_part part = berth_heads_of(heads, kv_heads, world);
    if (world.size > 1 && (part.queries.extent < 1 || part.keys.extent < 1)) {
        berth_build_fail(builder, BERTH_INVALID_ARGUMENT,
                         "'%s': %lld heads and %lld key heads cannot be divided among %lld ranks",
                         call->prefix, (long long)heads, (long long)kv_heads,
                         (long long)world.size);
        return;
    }
    const berth_part queries = times(part.queries, size);
    const berth_part keys = times(part.keys, size);
    const berth_part values = times(part.keys, value_size);
    const berth_shard shards[] = {
        berth_shard_part("q", 0, queries, heads * size),
        berth_shard_part("k", queries.extent, keys, kv_heads * size),
        berth_shard_part("v", queries.extent + keys.extent, values, kv_heads * value_size),
    };
    const berth_shard *const list[] = {&shards[0], &shards[1], &shards[2]};
    const berth_linear linear = {
        .layer_class = "QKVParallelLinear",
        .output_size = queries.extent + keys.extent + values.extent,
        .shards = list,
        .shard_count = 3,
    };
    const berth_value qkv = berth_linear_emit(builder, call, linear);
    for (uint64_t i = 0; i < 3; ++i) {
        call->outputs[i] = builder->slice(builder, qkv, 1, shards[i].offset, shards[i].extent);
    }
}

const berth_layer berth_layer_qkv_parallel_linear = {
    .size = sizeof(berth_layer),
    .name = "QKVParallelLinear",
    .build = build,
};
