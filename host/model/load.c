// SPDX-License-Identifier: Apache-2.0
// Input: a weight whose tensors were checked. Output: its resident bytes: shards put in their
// places, numbers converted to the resident type.
#include "base/convert.h"
#include "model/parameters.h"

// The product of the extents of dimensions [first, end).
static uint64_t product(const berth_value_type *type, uint64_t first, uint64_t end) {
    uint64_t count = 1;
    for (uint64_t i = first; i < end; ++i) {
        count *= (uint64_t)type->dims[i].b;
    }
    return count;
}

static void load_piece(const berth_weight *weight, const struct berth_weight_piece *piece,
                       uint8_t *destination) {
    const berth_value_type *type = &weight->type;
    const berth_stored_tensor *tensor = piece->tensor;
    const uint64_t from_bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
    const uint64_t to_bytes = BERTH_DTYPE_BITS(type->dtype) / 8;
    const uint64_t inner = product(type, piece->dim + 1, type->ndim);
    const uint64_t part = (uint64_t)piece->extent * inner; // contiguous in the tensor
    const uint64_t row = product(type, piece->dim, type->ndim);
    const uint64_t rows = product(type, 0, piece->dim);
    const uint8_t *source = tensor->data;
    destination += (uint64_t)piece->offset * inner * to_bytes;
    for (uint64_t i = 0; i < rows; ++i) {
        berth_convert(tensor->dtype, source + i * part * from_bytes, type->dtype,
                      destination + i * row * to_bytes, part);
    }
}

berth_status berth_weight_load(const berth_weight *weight, void *destination) {
    for (size_t i = 0; i < weight->piece_count; ++i) {
        load_piece(weight, &weight->pieces[i], destination);
        berth_stored_tensor_drop(weight->pieces[i].tensor);
    }
    return BERTH_OK;
}
