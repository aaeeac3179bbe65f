// SPDX-License-Identifier: Apache-2.0
// Transposition of 32-bit elements, for operands that are packed before they are multiplied.
#ifndef BERTH_KERNELS_CPU_TRANSPOSE_H
#define BERTH_KERNELS_CPU_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

typedef float berth_four __attribute__((vector_size(16)));

// Four by four. Strides in elements. The bits are moved, so an element may be any 32 of them.
static inline void berth_transpose_four(const float *from, int64_t from_stride, float *to,
                                        int64_t to_stride) {
    berth_four rows[4];
    for (int row = 0; row < 4; ++row) {
        memcpy(&rows[row], from + row * from_stride, sizeof(berth_four));
    }
    const berth_four a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
    const berth_four b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
    const berth_four c = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    const berth_four d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    const berth_four columns[4] = {
        __builtin_shufflevector(a, b, 0, 1, 4, 5),
        __builtin_shufflevector(a, b, 2, 3, 6, 7),
        __builtin_shufflevector(c, d, 0, 1, 4, 5),
        __builtin_shufflevector(c, d, 2, 3, 6, 7),
    };
    for (int column = 0; column < 4; ++column) {
        memcpy(to + column * to_stride, &columns[column], sizeof(berth_four));
    }
}

// to[column][row] = from[row][column]; the rows of `to` have no gaps.
static inline void berth_transpose(const float *from, int64_t from_stride, int64_t rows,
                                   int64_t columns, float *to) {
    const int64_t whole_rows = rows / 4 * 4;
    const int64_t whole_columns = columns / 4 * 4;
    for (int64_t column = 0; column < whole_columns; column += 4) {
        for (int64_t row = 0; row < whole_rows; row += 4) {
            berth_transpose_four(from + row * from_stride + column, from_stride,
                                 to + column * rows + row, rows);
        }
    }
    for (int64_t column = 0; column < columns; ++column) {
        for (int64_t row = column < whole_columns ? whole_rows : 0; row < rows; ++row) {
            memcpy(to + column * rows + row, from + row * from_stride + column, sizeof(float));
        }
    }
}

#endif
