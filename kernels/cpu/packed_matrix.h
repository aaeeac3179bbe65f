// SPDX-License-Identifier: Apache-2.0
// The sums of a few rows of x with one group of columns of codes as products of matrices: what a
// line of x is multiplied by is widened to a place of its own, while the line before it is
// multiplied, both panels of a pair in turns, so that their sums stay in registers for all of the
// group. They are the sums that many rows have (packed_rows.h).
#ifndef BERTH_KERNELS_CPU_PACKED_MATRIX_H
#define BERTH_KERNELS_CPU_PACKED_MATRIX_H

#include <cpu/packed_rows.h>

#define PACKED_STEP (2 * MATRIX_STEP) // bytes of both panels with a line of x

// A line of x by a step of both panels.
static inline void packed_add_line(const char *x, const char *widened) {
    berth_matrix_x(x);
    berth_matrix_weight(widened);
    berth_matrix_dot(0, 0);
    berth_matrix_weight(widened + MATRIX_STEP);
    berth_matrix_dot(0, 1);
}

// At the end of a row of x pairs are no whole line: the others become zero.
static inline void packed_fill_line(char *widened, int64_t pairs) {
    const size_t there = (size_t)(pairs * MATRIX_PAIR);
    memmove(widened + MATRIX_STEP, widened + there, there);
    memset(widened + there, 0, MATRIX_STEP - there);
    memset(widened + MATRIX_STEP + there, 0, MATRIX_STEP - there);
}

// Why one line behind: what has just been stored is not in the first cache yet.
static inline void packed_add_pair(const packed_job *in, const packed_span *of, int64_t pair) {
    const packed *self = in->self;
    const int64_t most = MATRIX_WORDS * 2 / packed_columns(self->kind);
    const uint8_t *codes = of->codes + pair * self->panels_bytes;
    const float *zeros = of->room->zeros + pair * PACKED_WIDTH;
    char *const places[2] = {(char *)of->room->widened, (char *)of->room->widened + PACKED_STEP};
    const char *x = NULL;
    int at = 0;
    for (int64_t step = of->steps.first; step < of->steps.end; step += most, at = !at) {
        const berth_span steps = {step, at_most(step + most, of->steps.end)};
        const packed_chunk chunk = packed_chunk_of(in, codes, steps);
        packed_widen(self, &chunk, zeros, (float *)(void *)places[at]);
        if (chunk.steps < most) {
            packed_fill_line(places[at], chunk.steps * packed_columns(self->kind) / 2);
        }
        if (x) {
            packed_add_line(x, places[!at]);
        }
        x = (const char *)chunk.x;
    }
    packed_add_line(x, places[!at]);
}

static inline void packed_by_matrix(const packed_job *in, const packed_span *of) {
    for (int64_t pair = 0; pair < of->count; ++pair) {
        berth_matrix_zero();
        packed_add_pair(in, of, pair);
        berth_matrix_keep(packed_sums_at(in, of->room->sums, pair, 0), 0);
        berth_matrix_keep(packed_sums_at(in, of->room->sums, pair, 1), 1);
    }
}

#endif
