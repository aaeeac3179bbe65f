// SPDX-License-Identifier: Apache-2.0
// Input: a weight whose tensors were checked. Output: its resident bytes: shards put in their
// places, numbers converted to the resident type.
#include <string.h>

#include "base/convert.h"
#include "model/parameters.h"

#define SLICE_BYTES ((uint64_t)4 << 20) // of a file that are mapped at a time

// The product of the extents of dimensions [first, end).
static uint64_t product(const berth_value_type *type, uint64_t first, uint64_t end) {
    uint64_t count = 1;
    for (uint64_t i = first; i < end; ++i) {
        count *= (uint64_t)type->dims[i].b;
    }
    return count;
}

// Elements [first, first + count) of a tensor, dropped behind.
static void load_part(const berth_stored_tensor *tensor, uint64_t first, uint64_t count,
                      berth_dtype to, uint8_t *destination) {
    const uint64_t from_bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
    const uint64_t to_bytes = BERTH_DTYPE_BITS(to) / 8;
    const uint64_t slice = SLICE_BYTES / from_bytes;
    for (uint64_t done = 0; done < count; done += slice) {
        const uint64_t some = count - done < slice ? count - done : slice;
        const uint64_t begin = (first + done) * from_bytes;
        berth_convert(tensor->dtype, (const uint8_t *)tensor->data + begin, to,
                      destination + done * to_bytes, some);
        berth_stored_tensor_drop(tensor, begin, some * from_bytes);
    }
}

static void load_piece(const berth_weight *weight, const struct berth_weight_piece *piece,
                       uint8_t *destination) {
    const berth_value_type *type = &weight->type;
    const berth_stored_tensor *tensor = piece->tensor;
    const uint64_t to_bytes = BERTH_DTYPE_BITS(type->dtype) / 8;
    const uint64_t inner = product(type, piece->dim + 1, type->ndim);
    const uint64_t part = (uint64_t)piece->extent * inner; // contiguous in the tensor
    const uint64_t stored = (uint64_t)piece->stored_extent * inner;
    const uint64_t first = (uint64_t)piece->stored_offset * inner;
    const uint64_t row = product(type, piece->dim, type->ndim);
    const uint64_t rows = product(type, 0, piece->dim);
    destination += (uint64_t)piece->offset * inner * to_bytes;
    for (uint64_t i = 0; i < rows; ++i) {
        load_part(tensor, first + i * stored, part, type->dtype, destination + i * row * to_bytes);
    }
}

const void *berth_weight_stored(const berth_weight *weight) {
    const berth_stored_tensor *tensor = weight->pieces[0].tensor;
    const bool is_whole = weight->piece_count == 1 && tensor->bytes == weight->bytes;
    const bool is_aligned = (uintptr_t)tensor->data % (BERTH_DTYPE_BITS(tensor->dtype) / 8) == 0;
    return is_whole && is_aligned && tensor->dtype == weight->type.dtype ? tensor->data : NULL;
}

void berth_weight_drop(const berth_weight *weight) {
    for (size_t i = 0; i < weight->piece_count; ++i) {
        const berth_stored_tensor *tensor = weight->pieces[i].tensor;
        berth_stored_tensor_drop(tensor, 0, tensor->bytes);
    }
}

berth_status berth_weight_load(const berth_weight *weight, void *destination) {
    if (weight->is_padded) {
        memset(destination, 0, weight->bytes);
    }
    for (size_t i = 0; i < weight->piece_count; ++i) {
        load_piece(weight, &weight->pieces[i], destination);
    }
    return BERTH_OK;
}
