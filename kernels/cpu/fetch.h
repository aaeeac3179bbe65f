// SPDX-License-Identifier: Apache-2.0
// What a row's loop fetches while it works at other columns: what stands so many bytes behind some
// columns, in the rows after it where they follow each other.
#ifndef BERTH_KERNELS_CPU_FETCH_H
#define BERTH_KERNELS_CPU_FETCH_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

#define BERTH_LINE 64 // bytes

BERTH_INLINE void berth_fetch_lines(const char *from, int64_t bytes, int is_far) {
    BERTH_UNROLL
    for (int64_t at = 0; at < bytes; at += BERTH_LINE) {
        if (is_far) {
            BERTH_PREFETCH_FAR(from + at);
        } else {
            BERTH_PREFETCH(from + at);
        }
    }
}

BERTH_INLINE void berth_fetch(const void *row, berth_dtype dtype, int64_t first, int64_t count,
                              int64_t ahead) {
    const int64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    berth_fetch_lines((const char *)row + first * bytes + ahead, count * bytes, 0);
}

// The same into the second cache.
BERTH_INLINE void berth_fetch_far(const void *row, berth_dtype dtype, int64_t first, int64_t count,
                                  int64_t ahead) {
    const int64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    berth_fetch_lines((const char *)row + first * bytes + ahead, count * bytes, 1);
}

// Which step is a turn's where both halves of all steps go side by side: one thread reads memory
// faster in two places than in one, unless both are in one page. One that is left over is the last.
BERTH_INLINE int64_t berth_side_by_side(int64_t turn, int64_t steps) {
    const int64_t half = steps / 2;
    return turn < 2 * half ? turn / 2 + turn % 2 * half : turn;
}

// Why so far: less does not cover the way from memory.
#define BERTH_FETCH_AHEAD 8192 // bytes

// From a row to the first one behind it that is that far.
static inline int64_t berth_fetch_row_ahead(int64_t row_bytes) {
    return row_bytes > 0 ? (BERTH_FETCH_AHEAD + row_bytes - 1) / row_bytes * row_bytes : 0;
}

// While some columns of a row are worked at, as many of a later row: lines of either half in turns.
BERTH_INLINE void berth_fetch_halves(const void *row, berth_dtype dtype, berth_span columns,
                                     int64_t width, int64_t ahead) {
    const int64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    const int64_t half = width * bytes / 2;
    const char *to = (const char *)row + ahead + columns.first * bytes / 2;
    BERTH_UNROLL
    for (int64_t at = 0; at < (columns.end - columns.first) * bytes / 2; at += BERTH_LINE) {
        BERTH_PREFETCH(to + at);
        BERTH_PREFETCH(to + at + half);
    }
}

#endif
