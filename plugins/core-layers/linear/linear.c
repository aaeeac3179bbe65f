// SPDX-License-Identifier: Apache-2.0
// Input: a layer's call. Output: the linear that it describes, as this rank has it.
#include "linear.h"

#include <string.h>

berth_world berth_world_of(berth_builder *builder, const berth_call *call) {
    const berth_world world = {
        .size = berth_call_i64(call, "tp_size", 1),
        .rank = berth_call_i64(call, "tp_rank", 0),
    };
    if (world.size < 1 || world.rank < 0 || world.rank >= world.size) {
        berth_build_fail(builder, BERTH_INVALID_ARGUMENT, "'%s': rank %lld of a world of %lld",
                         call->prefix, (long long)world.rank, (long long)world.size);
        return (berth_world){.size = 1};
    }
    return berth_call_i64(call, "disable_tp", 0) ? (berth_world){.size = 1} : world;
}

berth_part berth_world_part(berth_builder *builder, const berth_call *call, berth_world world,
                            const char *what, int64_t whole) {
    const berth_part part = berth_part_of(whole, world);
    if (part.extent < 1 && world.size > 1) { // a size that is none has its refusal elsewhere
        berth_build_fail(builder, BERTH_INVALID_ARGUMENT,
                         "'%s': %s %lld cannot be divided among %lld ranks", call->prefix, what,
                         (long long)whole, (long long)world.size);
        return (berth_part){.extent = whole};
    }
    return part;
}

berth_shard berth_shard_part(const char *id, int64_t offset, berth_part part, int64_t whole) {
    return (berth_shard){
        .size = sizeof(berth_shard),
        .id = id,
        .offset = offset,
        .extent = part.extent,
        .stored_offset = part.offset,
        .stored_extent = whole,
    };
}

berth_value berth_linear_emit(berth_builder *builder, const berth_call *call, berth_linear linear) {
    linear.size = sizeof linear;
    linear.prefix = call->prefix;
    linear.input_size =
        linear.input_size > 0 ? linear.input_size : berth_call_i64(call, "input_size", 0);
    linear.has_bias = berth_call_i64(call, "bias", 0) != 0;
    return builder->linear(builder, &linear, call->inputs[0]);
}

berth_value berth_linear_gather(berth_builder *builder, const berth_call *call, berth_world world,
                                berth_value y) {
    return world.size > 1 && berth_call_i64(call, "gather_output", 0)
               ? BERTH_EMIT(builder, "all_gather", .prefix = call->prefix, BERTH_INPUTS(y),
                            BERTH_ATTRIBUTES(BERTH_I64("world_size", world.size)))
               : y;
}

uint64_t berth_call_without(const berth_call *call, const char *const *names, uint64_t count,
                            const berth_attribute *out[BERTH_MAX_HANDED]) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < call->attribute_count && kept < BERTH_MAX_HANDED - 1; ++i) {
        int is_named = 0;
        for (uint64_t k = 0; k < count; ++k) {
            is_named = is_named || strcmp(call->attributes[i]->name, names[k]) == 0;
        }
        if (!is_named) {
            out[kept++] = call->attributes[i];
        }
    }
    return kept;
}
