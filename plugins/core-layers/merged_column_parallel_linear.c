// SPDX-License-Identifier: Apache-2.0
// MergedColumnParallelLinear: several column-parallel linears of one input as one product, such as
// gate and up of an MLP. Their weights stand one after another as the shards "0", "1", …; ranks
// divide each of them.
// Input x [tokens, input_size]; output [tokens, sum of output_sizes / ranks].
// Attributes: input_size, output_sizes (list of at most 8), bias (0), gather_output (0), tp_size
// (1), tp_rank (0), disable_tp (0).
#include "linear/linear.h"

#define MAX_SHARDS 8

static void build(berth_builder *builder, const berth_call *call) {
    static const char *const ids[MAX_SHARDS] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    const berth_world world = berth_world_of(builder, call);
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
        const berth_part part =
            berth_world_part(builder, call, world, "a size of output_sizes", sizes->i64s[i]);
        shards[i] = berth_shard_part(ids[i], offset, part, sizes->i64s[i]);
        list[i] = &shards[i];
        offset += part.extent;
    }
    const berth_linear linear = {
        .layer_class = "MergedColumnParallelLinear",
        .output_size = offset,
        .shards = list,
        .shard_count = sizes->count,
    };
    const berth_value y = berth_linear_emit(builder, call, linear);
    call->outputs[0] = berth_linear_gather(builder, call, world, y);
}

const berth_layer berth_layer_merged_column_parallel_linear = {
    .size = sizeof(berth_layer),
    .name = "MergedColumnParallelLinear",
    .build = build,
};
