// SPDX-License-Identifier: Apache-2.0
// Which tensors fill which parts of one weight. Private to this module.
#ifndef BERTH_MODEL_PIECES_H
#define BERTH_MODEL_PIECES_H

#include "base/array.h"
#include "model/model.h"
#include "model/weight_names.h"

// One tensor of the checkpoint and the part of the weight that it fills.
struct berth_weight_piece {
    const berth_stored_tensor *tensor;
    uint64_t dim;          // the dimension of which this is a part
    int64_t offset;        // along it
    int64_t extent;        // 0: nothing of the tensor
    int64_t stored_offset; // where the part begins in the tensor
    int64_t stored_extent; // of the whole tensor
    int64_t slice;         // of the first dimension, which the tensor lacks; −1: it lacks none
    bool is_transposed;    // the tensor has the last two dimensions exchanged
};

typedef struct berth_missing_tensor {
    const char *name;
    const berth_weight *weight; // that needs it
} berth_missing_tensor;
typedef berth_array(berth_missing_tensor) berth_missing_names;

// Elements between two dimensions of a weight: the product of the extents of dimensions [first,
// end).
static inline uint64_t berth_elements_between(const berth_value_type *type, uint64_t first,
                                              uint64_t end) {
    uint64_t count = 1;
    for (uint64_t i = first; i < end; ++i) {
        count *= (uint64_t)type->dims[i].b;
    }
    return count;
}

// Finds the tensors of a declared parameter and sets the weight's pieces. What contradicts the
// declaration fails; tensors that are not there are added to `missing`.
BERTH_MUST_CHECK berth_status berth_pieces_find(berth_weight_names *names,
                                                const berth_parameter *declared,
                                                berth_missing_names *missing, berth_weight *weight);
// What a transposed piece has of the weight's rows [first, first + count), put where it belongs in
// `destination`, which begins with row `first`.
void berth_piece_transpose(const berth_weight *weight, const struct berth_weight_piece *piece,
                           uint64_t first, uint64_t count, uint8_t *destination);
// Those rows were read for the last time.
void berth_piece_drop_transposed(const berth_weight *weight, const struct berth_weight_piece *piece,
                                 uint64_t first, uint64_t count);
// A shard as the host's own struct, whatever minor of the contract it comes from.
berth_shard berth_shard_at(const berth_parameter *declared, uint64_t index);

#endif
