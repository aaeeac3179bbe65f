// SPDX-License-Identifier: Apache-2.0
// MergedColumnParallelLinear: several column-parallel linears of one input as one product, such as
// gate and up of an MLP. Their weights stand one after another as the shards "0", "1", ….
// Input x [tokens, input_size]; output [tokens, sum of output_sizes].
// Attributes: input_size, output_sizes (list of at most 8), bias (0).
#include "linear/linear.h"

#define MAX_SHARDS 8

static void build(berth_builder *builder, const berth_call *call) {
    static const char *const ids[MAX_SHARDS] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    const berth_attribute *sizes =
        berth_attribute_find(call->attributes, call->attribute_count, "output_sizes");
    if (sizes == NULL || sizes->count < 1 || sizes->count > MAX_SHARDS) {
        berth_build_fail(builder, BERTH_INVALID_ARGUMENT, "'%s': output_sizes lists 1 to %d sizes",
                         call->prefix, MAX_SHARDS);
        return;
    }
    berth_shard shards[MAX_SHARDS];
    const berth_shard *list[MAX_SHARDS];
    int64_t offset = 0;
    for (uint64_t i = 0; i < sizes->count; ++i) {
        shards[i] = (berth_shard){
            .size = sizeof(berth_shard),
            .id = ids[i],
            .offset = offset,
            .extent = sizes->i64s[i],
        };
        list[i] = &shards[i];
        offset += sizes->i64s[i];
    }
    const berth_linear linear = {
        .layer_class = "MergedColumnParallelLinear",
        .output_size = offset,
        .shards = list,
        .shard_count = sizes->count,
    };
    call->outputs[0] = berth_linear_emit(builder, call, linear);
}

const berth_layer berth_layer_merged_column_parallel_linear = {
    .size = sizeof(berth_layer),
    .name = "MergedColumnParallelLinear",
    .build = build,
};
