// SPDX-License-Identifier: Apache-2.0
// Input: a weight whose tensors were checked. Output: its resident bytes: shards put in their
// places, numbers converted to the resident type.
#include <math.h>
#include <string.h>

#include "base/convert.h"
#include "model/pieces.h"

#define SLICE_BYTES ((uint64_t)4 << 20) // of a file that are mapped at a time
#define SCALES      256                 // that are looked at at a time

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

// What of the weight a piece's tensor is about: all of it, or one slice.
static uint64_t begin_of(const berth_weight *weight, const struct berth_weight_piece *piece) {
    return piece->slice < 0 ? 0
                            : (uint64_t)piece->slice *
                                  berth_elements_between(&weight->type, 1, weight->type.ndim);
}

static void load_rows(const berth_weight *weight, const struct berth_weight_piece *piece,
                      uint8_t *destination) {
    const berth_value_type *type = &weight->type;
    const uint64_t to_bytes = BERTH_DTYPE_BITS(type->dtype) / 8;
    const uint64_t inner = berth_elements_between(type, piece->dim + 1, type->ndim);
    const uint64_t part = (uint64_t)piece->extent * inner; // contiguous in the tensor
    const uint64_t stored = (uint64_t)piece->stored_extent * inner;
    const uint64_t first = (uint64_t)piece->stored_offset * inner;
    const uint64_t row = berth_elements_between(type, piece->dim, type->ndim);
    const uint64_t rows = berth_elements_between(type, piece->slice < 0 ? 0 : 1, piece->dim);
    destination += (begin_of(weight, piece) + (uint64_t)piece->offset * inner) * to_bytes;
    for (uint64_t i = 0; i < rows; ++i) {
        load_part(piece->tensor, first + i * stored, part, type->dtype,
                  destination + i * row * to_bytes);
    }
}

// The tensor has the last two dimensions exchanged.
static void load_transposed(const berth_weight *weight, const struct berth_weight_piece *piece,
                            uint8_t *destination) {
    const uint64_t rows = berth_elements_between(&weight->type, 0, weight->type.ndim - 1u);
    berth_piece_transpose(weight, piece, 0, rows, destination);
    berth_stored_tensor_drop(piece->tensor, 0, piece->tensor->bytes);
}

static void load_piece(const berth_weight *weight, const struct berth_weight_piece *piece,
                       uint8_t *destination) {
    (piece->is_transposed ? load_transposed : load_rows)(weight, piece, destination);
}

// Why through float: the sum is rounded once, whatever the resident type is.
static void add_to_all(const berth_weight *weight, uint8_t *destination) {
    const uint64_t bytes = BERTH_DTYPE_BITS(weight->type.dtype) / 8;
    for (uint64_t i = 0; i < weight->bytes / bytes; ++i) {
        float number = 0;
        berth_convert(weight->type.dtype, destination + i * bytes, BERTH_DTYPE_F32, &number, 1);
        number += (float)weight->addend;
        berth_convert(BERTH_DTYPE_F32, &number, weight->type.dtype, destination + i * bytes, 1);
    }
}

static void become_decays(const berth_weight *weight, uint8_t *destination) {
    for (uint64_t i = 0; i < weight->bytes / sizeof(float); ++i) {
        float number = 0;
        memcpy(&number, destination + i * sizeof number, sizeof number);
        number = -expf(number);
        memcpy(destination + i * sizeof number, &number, sizeof number);
    }
}

static void fill_default(const berth_weight *weight, uint8_t *destination) {
    const float number = (float)weight->default_value;
    const uint64_t bytes = BERTH_DTYPE_BITS(weight->type.dtype) / 8;
    const bool is_float = berth_can_convert(weight->type.dtype);
    memset(destination, is_float ? 0 : (int)number, weight->bytes);
    for (uint64_t at = 0; is_float && at < weight->bytes; at += bytes) {
        berth_convert(BERTH_DTYPE_F32, &number, weight->type.dtype, destination + at, 1);
    }
}

// Numbers of a scale as floats. A code of e8m0 is a power of two, or 255, which is none.
static void widen_scales(const berth_stored_tensor *tensor, uint64_t first, float *numbers,
                         uint64_t count) {
    const uint8_t *codes = (const uint8_t *)tensor->data + first;
    if (BERTH_DTYPE_BITS(tensor->dtype) > 8) {
        const uint64_t bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
        berth_convert(tensor->dtype, (const uint8_t *)tensor->data + first * bytes, BERTH_DTYPE_F32,
                      numbers, count);
        return;
    }
    for (uint64_t i = 0; i < count; ++i) {
        numbers[i] = tensor->dtype == BERTH_DTYPE_F8_E4M3FN ? berth_float_of_e4m3(codes[i])
                     : codes[i] == 0xff                     ? NAN
                                                            : 1.0f;
    }
}

// Scales are few, so they are looked at by themselves, where the tensor's name is still known.
static berth_status check_scales(const berth_stored_tensor *tensor) {
    float numbers[SCALES];
    const uint64_t count = tensor->bytes * 8 / BERTH_DTYPE_BITS(tensor->dtype);
    for (uint64_t first = 0; first < count; first += SCALES) {
        const uint64_t some = count - first < SCALES ? count - first : SCALES;
        widen_scales(tensor, first, numbers, some);
        for (uint64_t i = 0; i < some; ++i) {
            if (!isfinite(numbers[i]) || numbers[i] <= 0) {
                return BERTH_FAIL(CORRUPT,
                                  "%s: tensor '%s': number %llu is %g; a scale must be finite and "
                                  "greater than zero",
                                  berth_safetensors_path(tensor->file), tensor->name,
                                  (unsigned long long)(first + i), (double)numbers[i]);
            }
        }
    }
    return BERTH_OK;
}

const void *berth_weight_stored(const berth_weight *weight) {
    if (weight->piece_count == 0 || weight->is_scale) {
        return NULL;
    }
    const berth_stored_tensor *tensor = weight->pieces[0].tensor;
    const bool is_whole = weight->piece_count == 1 && tensor->bytes == weight->bytes;
    const bool is_aligned = (uintptr_t)tensor->data % (BERTH_DTYPE_BITS(tensor->dtype) / 8) == 0;
    const bool is_changed =
        weight->pieces[0].is_transposed || weight->addend != 0 || weight->is_log_decay;
    return is_whole && !is_changed && is_aligned && tensor->dtype == weight->type.dtype
               ? tensor->data
               : NULL;
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
    if (weight->piece_count == 0) {
        fill_default(weight, destination);
    }
    for (size_t i = 0; i < weight->piece_count; ++i) {
        if (weight->is_scale) {
            BERTH_TRY(check_scales(weight->pieces[i].tensor));
        }
        load_piece(weight, &weight->pieces[i], destination);
    }
    if (weight->addend != 0) {
        add_to_all(weight, destination);
    }
    if (weight->is_log_decay) {
        become_decays(weight, destination);
    }
    return BERTH_OK;
}
