// SPDX-License-Identifier: Apache-2.0
// What a row's loop fetches while it works at other columns: what stands so many bytes behind some
// columns, in the rows after it where they follow each other.
#ifndef BERTH_KERNELS_CPU_FETCH_H
#define BERTH_KERNELS_CPU_FETCH_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

#define BERTH_LINE 64 // bytes

BERTH_INLINE void berth_fetch_lines(const char *from, int64_t bytes, int is_far) {
    if (is_far) {
        BERTH_UNROLL
        for (int64_t at = 0; at < bytes; at += BERTH_LINE) {
            BERTH_PREFETCH_FAR(from + at);
        }
        return;
    }
    BERTH_UNROLL
    for (int64_t at = 0; at < bytes; at += BERTH_LINE) {
        BERTH_PREFETCH(from + at);
    }
}

// How far behind what is worked at something is asked for, and how: into the first cache, or into
// the second, and again at half and at a quarter of the way (reads.h).
typedef struct berth_ahead {
    int64_t bytes;
    int is_far;
} berth_ahead;

BERTH_INLINE void berth_fetch_once(const void *row, berth_dtype dtype, int64_t first, int64_t count,
                                   berth_ahead ahead) {
    const int64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    berth_fetch_lines((const char *)row + first * bytes + ahead.bytes, count * bytes, ahead.is_far);
}

BERTH_INLINE void berth_fetch(const void *row, berth_dtype dtype, int64_t first, int64_t count,
                              berth_ahead ahead) {
    berth_fetch_once(row, dtype, first, count, ahead);
    if (ahead.is_far) {
        const berth_ahead half = {.bytes = ahead.bytes / 2, .is_far = 1};
        const berth_ahead quarter = {.bytes = ahead.bytes / 4, .is_far = 1};
        berth_fetch_once(row, dtype, first, count, half);
        berth_fetch_once(row, dtype, first, count, quarter);
    }
}

// Into the second cache, whatever the machine.
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

// Which it is where both halves go side by side, or all steps straight on, as rows that are asked
// for far ahead do.
BERTH_INLINE int64_t berth_step_at(int64_t turn, int64_t steps, int is_straight) {
    return is_straight ? turn : berth_side_by_side(turn, steps);
}

// Why so far: less does not cover the way from memory.
#define BERTH_FETCH_AHEAD 8192 // bytes

// From a row to the first one behind it that is that far.
static inline int64_t berth_fetch_row_ahead(int64_t row_bytes) {
    return row_bytes > 0 ? (BERTH_FETCH_AHEAD + row_bytes - 1) / row_bytes * row_bytes : 0;
}

// While some columns of a row are worked at, as many of a later row, of either half.
BERTH_INLINE void berth_fetch_halves(const void *row, berth_dtype dtype, berth_span columns,
                                     int64_t width, berth_ahead ahead) {
    const int64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    const int64_t half = width * bytes / 2;
    const int64_t count = (columns.end - columns.first) * bytes / 2;
    const char *to = (const char *)row + ahead.bytes + columns.first * bytes / 2;
    berth_fetch_lines(to, count, ahead.is_far);
    berth_fetch_lines(to + half, count, ahead.is_far);
}

#endif
