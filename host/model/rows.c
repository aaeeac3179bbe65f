// SPDX-License-Identifier: Apache-2.0
// Input: a weight whose tensors were checked, and which of its rows are wanted. Output: those rows:
// where they lie mapped when that is their resident form, else made in the caller's buffer. Nothing
// is kept, so that threads need not know of each other.
#include <string.h>

#include "base/convert.h"
#include "model/pieces.h"

// Elements [to, to + count) of the weight, which are elements [from, from + count) of a tensor.
typedef struct run {
    const berth_stored_tensor *tensor;
    uint64_t to;
    uint64_t from;
    uint64_t count;
} run;

static uint64_t row_length(const berth_weight *weight) {
    return (uint64_t)weight->type.dims[weight->type.ndim - 1].b;
}

// Whether the piece is one run of whole rows.
static bool is_run(const berth_weight *weight, const struct berth_weight_piece *piece) {
    const uint64_t first = piece->slice < 0 ? 0 : 1;
    return piece->dim + 1 < weight->type.ndim &&
           (piece->dim <= first || berth_elements_between(&weight->type, first, piece->dim) == 1);
}

static run run_of(const berth_weight *weight, const struct berth_weight_piece *piece) {
    const uint64_t inner = berth_elements_between(&weight->type, piece->dim + 1, weight->type.ndim);
    const uint64_t slice =
        piece->slice < 0
            ? 0
            : (uint64_t)piece->slice * berth_elements_between(&weight->type, 1, weight->type.ndim);
    return (run){
        .tensor = piece->tensor,
        .to = slice + (uint64_t)piece->offset * inner,
        .from = (uint64_t)piece->stored_offset * inner,
        .count = (uint64_t)piece->extent * inner,
    };
}

// What of the run lies in elements [begin, end) of the weight; count 0: nothing.
static run part_of(run whole, uint64_t begin, uint64_t end) {
    const uint64_t first = whole.to > begin ? whole.to : begin;
    const uint64_t last = whole.to + whole.count < end ? whole.to + whole.count : end;
    whole.from += first - whole.to;
    whole.to = first;
    whole.count = last > first ? last - first : 0;
    return whole;
}

static const uint8_t *data_of(run part) {
    return (const uint8_t *)part.tensor->data +
           part.from * (BERTH_DTYPE_BITS(part.tensor->dtype) / 8);
}

bool berth_weight_has_rows(const berth_weight *weight) {
    const bool is_changed = weight->addend != 0 || weight->is_log_decay || weight->is_scale;
    bool has = weight->type.ndim >= 2 && weight->piece_count > 0 && !is_changed;
    for (size_t i = 0; i < weight->piece_count && has; ++i) {
        const struct berth_weight_piece *piece = &weight->pieces[i];
        has = piece->extent == 0 || piece->is_transposed || is_run(weight, piece);
    }
    return has;
}

const void *berth_weight_rows(const berth_weight *weight, uint64_t first, uint64_t count,
                              void *buffer) {
    const berth_dtype dtype = weight->type.dtype;
    const uint64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    const uint64_t begin = first * row_length(weight);
    const uint64_t end = begin + count * row_length(weight);
    if (weight->is_padded) {
        memset(buffer, 0, (end - begin) * bytes);
    }
    for (size_t i = 0; i < weight->piece_count; ++i) {
        if (weight->pieces[i].is_transposed) {
            berth_piece_transpose(weight, &weight->pieces[i], first, count, buffer);
            continue;
        }
        const run part = part_of(run_of(weight, &weight->pieces[i]), begin, end);
        if (part.count == end - begin && part.tensor->dtype == dtype &&
            (uintptr_t)data_of(part) % bytes == 0) {
            return data_of(part);
        }
        if (part.count > 0) {
            berth_convert(part.tensor->dtype, data_of(part), dtype,
                          (uint8_t *)buffer + (part.to - begin) * bytes, part.count);
        }
    }
    return buffer;
}

void berth_weight_drop_rows(const berth_weight *weight, uint64_t first, uint64_t count) {
    const uint64_t begin = first * row_length(weight);
    const uint64_t end = begin + count * row_length(weight);
    for (size_t i = 0; i < weight->piece_count; ++i) {
        if (weight->pieces[i].is_transposed) {
            berth_piece_drop_transposed(weight, &weight->pieces[i], first, count);
            continue;
        }
        const run part = part_of(run_of(weight, &weight->pieces[i]), begin, end);
        const uint64_t bytes = BERTH_DTYPE_BITS(part.tensor->dtype) / 8;
        if (part.count > 0) {
            berth_stored_tensor_drop(part.tensor, part.from * bytes, part.count * bytes);
        }
    }
}
