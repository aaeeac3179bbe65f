// SPDX-License-Identifier: Apache-2.0
// What the linear layers share. Private to core-layers.
//
// y = x W^T + b over x [tokens, input_size], by way of the layer's quantization method. Sizes are
// those of the whole model; what this rank has of it follows from the attributes `tp_size` (1) and
// `tp_rank` (0), unless `disable_tp` says that every rank has all.
#ifndef BERTH_LINEAR_H
#define BERTH_LINEAR_H

#include <berth/layer.h>
#include <berth/parallel.h>

// The world of the call; after a failure one rank.
berth_world berth_world_of(berth_builder *builder, const berth_call *call);
// The rank's equal part; fails the build naming `what` when there is none, and gives all then.
berth_part berth_world_part(berth_builder *builder, const berth_call *call, berth_world world,
                            const char *what, int64_t whole);
// A part of a stacked weight: `part` of the checkpoint's `whole` rows.
berth_shard berth_shard_part(const char *id, int64_t offset, berth_part part, int64_t whole);

// Completes `linear` (class, output size, shards, the rank's part) with the call's prefix and its
// attributes `bias` (0) and, where the size is not set, `input_size`, and emits it. Returns y
// [tokens, output_size].
berth_value berth_linear_emit(berth_builder *builder, const berth_call *call, berth_linear linear);
// The results of all ranks, one behind the other in the last dimension, when `gather_output` is
// given and there are several.
berth_value berth_linear_gather(berth_builder *builder, const berth_call *call, berth_world world,
                                berth_value y);
// Most attributes that a layer hands on to what it is made of.
#define BERTH_MAX_HANDED 32

// The call's attributes but for the `count` named: what a layer hands on. Leaves room for one more.
uint64_t berth_call_without(const berth_call *call, const char *const *names, uint64_t count,
                            const berth_attribute *out[BERTH_MAX_HANDED]);

#endif
