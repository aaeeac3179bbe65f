// SPDX-License-Identifier: Apache-2.0
// QKVParallelLinear: queries, keys and values of an attention layer as one product; the weights
// stand one after another as the shards "q", "k", "v".
// Input x [tokens, input_size]; outputs, views of one result: queries [tokens, total_num_heads *
// head_size], keys and values [tokens, total_num_kv_heads * head_size].
// Attributes: input_size, head_size, total_num_heads, total_num_kv_heads, bias (0).
#include "linear/linear.h"

static void build(berth_builder *builder, const berth_call *call) {
    const int64_t head_size = berth_call_i64(call, "head_size", 0);
    const int64_t queries = berth_call_i64(call, "total_num_heads", 0) * head_size;
    const int64_t keys = berth_call_i64(call, "total_num_kv_heads", 0) * head_size;
    const berth_shard shards[] = {
        {.size = sizeof(berth_shard), .id = "q", .offset = 0,              .extent = queries},
        {.size = sizeof(berth_shard), .id = "k", .offset = queries,        .extent = keys   },
        {.size = sizeof(berth_shard), .id = "v", .offset = queries + keys, .extent = keys   },
    };
    const berth_shard *const list[] = {&shards[0], &shards[1], &shards[2]};
    const berth_linear linear = {
        .layer_class = "QKVParallelLinear",
        .output_size = queries + 2 * keys,
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
