// SPDX-License-Identifier: Apache-2.0
// Input: a piece whose tensor has the last two dimensions of the weight exchanged, [..., b, a] for
// [..., a, b], and which rows of the weight are wanted. Output: what the piece has of them.
#include <string.h>

#include "base/convert.h"
#include "model/pieces.h"

#define TILE 64 // rows and columns that are transposed at a time

// ---- a block ------------------------------------------------------------------------------------

// A block of numbers [rows, columns] whose place in memory is given by two strides.
typedef struct block {
    const uint8_t *from;
    uint8_t *to;
    uint64_t rows, columns;
    uint64_t from_row; // bytes between rows of what is read, whose columns follow one another
    uint64_t to_column;
} block;

static inline void scatter(const uint8_t *line, uint64_t count, uint64_t bytes, uint8_t *to,
                           uint64_t step) {
    for (uint64_t i = 0; i < count; ++i) {
        memcpy(to + i * step, line + i * bytes, bytes);
    }
}

// At most TILE rows and columns. Why by cases: a size that the compiler knows is one store.
static void transpose_tile(const block *of, berth_dtype from, berth_dtype to) {
    const uint64_t bytes = BERTH_DTYPE_BITS(to) / 8;
    uint8_t line[TILE * sizeof(double)];
    for (uint64_t row = 0; row < of->rows; ++row) {
        uint8_t *place = of->to + row * bytes;
        berth_convert(from, of->from + row * of->from_row, to, line, of->columns);
        if (bytes == 2) {
            scatter(line, of->columns, 2, place, of->to_column);
        } else if (bytes == 4) {
            scatter(line, of->columns, 4, place, of->to_column);
        } else {
            scatter(line, of->columns, bytes, place, of->to_column);
        }
    }
}

static uint64_t at_most(uint64_t most, uint64_t count) {
    return count < most ? count : most;
}

// Some rows after another, each with all its columns, which lie side by side.
static void transpose(const block *of, berth_dtype from, berth_dtype to) {
    for (uint64_t row = 0; row < of->rows; row += TILE) {
        for (uint64_t column = 0; column < of->columns; column += TILE) {
            transpose_tile(
                &(const block){
                    .from = of->from + row * of->from_row + column * (BERTH_DTYPE_BITS(from) / 8),
                    .to = of->to + column * of->to_column + row * (BERTH_DTYPE_BITS(to) / 8),
                    .rows = at_most(TILE, of->rows - row),
                    .columns = at_most(TILE, of->columns - column),
                    .from_row = of->from_row,
                    .to_column = of->to_column,
                },
                from, to);
        }
    }
}

// ---- matrices -----------------------------------------------------------------------------------

// The matrices of a weight that a piece has something of; of a pair the first number counts rows of
// the weight, which are the tensor's columns.
typedef struct matrices {
    uint64_t first; // in the weight
    uint64_t stored_first;
    uint64_t count;
    uint64_t extents[2];
    uint64_t stored[2];
    uint64_t taken[2];
    uint64_t from[2]; // in the tensor's matrix
    uint64_t to[2];   // in the weight's
} matrices;

static matrices matrices_of(const berth_weight *weight, const struct berth_weight_piece *piece) {
    const berth_value_type *type = &weight->type;
    const uint64_t a = type->ndim - 2u;
    const uint64_t rows = (uint64_t)type->dims[a].b;
    const uint64_t columns = (uint64_t)type->dims[a + 1].b;
    const bool is_outer = piece->dim < a; // of matrices some are taken, from some place on
    const bool is_slice = piece->slice >= 0;
    const uint64_t of_slice = berth_elements_between(type, 1, a > 0 ? a : 1);
    matrices of = {
        .first = is_slice ? (uint64_t)piece->slice * of_slice : 0,
        .stored_first = is_outer ? (uint64_t)piece->stored_offset : 0,
        .count = is_outer   ? (uint64_t)piece->extent
                 : is_slice ? of_slice
                            : berth_elements_between(type, 0, a),
        .extents = {rows, columns},
        .stored = {rows, columns},
        .taken = {rows, columns},
    };
    if (!is_outer) {
        const uint64_t at = piece->dim - a;
        of.stored[at] = (uint64_t)piece->stored_extent;
        of.taken[at] = (uint64_t)piece->extent;
        of.from[at] = (uint64_t)piece->stored_offset;
        of.to[at] = (uint64_t)piece->offset;
    }
    return of;
}

// Rows [first, end) of a weight; end <= first: none.
typedef struct span {
    uint64_t first;
    uint64_t end;
} span;

// What of the wanted rows comes from one of the matrices.
static span part_of(const matrices *of, uint64_t matrix, span wanted) {
    const uint64_t first = (of->first + matrix) * of->extents[0] + of->to[0];
    const uint64_t end = first + of->taken[0];
    return (span){
        .first = first > wanted.first ? first : wanted.first,
        .end = end < wanted.end ? end : wanted.end,
    };
}

// ---- entry points -------------------------------------------------------------------------------

void berth_piece_transpose(const berth_weight *weight, const struct berth_weight_piece *piece,
                           uint64_t first, uint64_t count, uint8_t *destination) {
    const matrices of = matrices_of(weight, piece);
    const berth_dtype from = piece->tensor->dtype;
    const berth_dtype to = weight->type.dtype;
    const uint64_t from_bytes = BERTH_DTYPE_BITS(from) / 8;
    const uint64_t to_bytes = BERTH_DTYPE_BITS(to) / 8;
    const span wanted = {.first = first, .end = first + count};
    for (uint64_t i = 0; i < of.count; ++i) {
        const span part = part_of(&of, i, wanted);
        if (part.first >= part.end) {
            continue;
        }
        const uint64_t row = part.first - (of.first + i) * of.extents[0] - of.to[0] + of.from[0];
        const uint64_t at =
            ((of.stored_first + i) * of.stored[1] + of.from[1]) * of.stored[0] + row;
        const uint64_t place = (part.first - first) * of.extents[1] + of.to[1];
        transpose(
            &(const block){
                .from = (const uint8_t *)piece->tensor->data + at * from_bytes,
                .to = destination + place * to_bytes,
                .rows = of.taken[1],
                .columns = part.end - part.first,
                .from_row = of.stored[0] * from_bytes,
                .to_column = of.extents[1] * to_bytes,
            },
            from, to);
    }
}

// Every row lies in all pages of its matrix, so these are given back with its last one. Why all
// that lie before, too: another thread may have been later with the rows of an earlier matrix.
void berth_piece_drop_transposed(const berth_weight *weight, const struct berth_weight_piece *piece,
                                 uint64_t first, uint64_t count) {
    const matrices of = matrices_of(weight, piece);
    const uint64_t bytes =
        of.stored[0] * of.stored[1] * (BERTH_DTYPE_BITS(piece->tensor->dtype) / 8);
    uint64_t done = 0;
    for (uint64_t i = 0; i < of.count; ++i) {
        const uint64_t end = (of.first + i) * of.extents[0] + of.to[0] + of.taken[0];
        done = first < end && end <= first + count ? of.stored_first + i + 1 : done;
    }
    berth_stored_tensor_drop(piece->tensor, 0, done * bytes);
}
