// SPDX-License-Identifier: Apache-2.0
// The sums of a few rows of x with two panels of codes as products of matrices: what a line of x is
// multiplied by is widened to a place of its own, both panels in turns, so that their sums stay in
// registers for all of a group. They are the sums that many rows have (packed_rows.h).
//
// A line is multiplied while the next one is widened, a quarter of either in turns: with one whole
// behind the other, neither's instructions are near enough for the processor to begin them before
// the other's end (Sapphire Rapids, u4: 60 ns a line, in turns 45, widened alone 34).
#ifndef BERTH_KERNELS_CPU_PACKED_MATRIX_H
#define BERTH_KERNELS_CPU_PACKED_MATRIX_H

#include <cpu/packed_rows.h>
#include <cpu/packed_sums.h>

// A line of x, and what it is multiplied by: a step of both panels, one behind the other.
typedef struct packed_line {
    const char *x; // NULL: there is none
    const char *widened;
} packed_line;

#define PACKED_STEP     (2 * MATRIX_STEP) // bytes of both panels with a line of x
#define PACKED_QUARTERS 4                 // of it, halves of both panels

BERTH_INLINE int64_t packed_line_steps(packed_kind kind) {
    return MATRIX_WORDS * 2 / packed_columns(kind);
}

BERTH_INLINE void packed_add_quarter(const packed_line *of, int quarter) {
    const int panel = quarter / 2;
    const int half = quarter % 2;
    if (half == 0) { // the same x beside either panel
        berth_matrix_x(of->x, panel);
    }
    berth_matrix_weight(of->widened + panel * MATRIX_STEP, MATRIX_PAIR, half);
    berth_matrix_dot(0, panel, half);
}

// At the end of a row of x pairs are no whole line: the others become zero.
static inline void packed_fill_line(char *widened, int64_t pairs) {
    const int64_t there = pairs * MATRIX_PAIR;
    memset(widened + there, 0, (size_t)(MATRIX_STEP - there));
    memset(widened + MATRIX_STEP + there, 0, (size_t)(MATRIX_STEP - there));
}

// Why one line behind: what has just been stored is not in the first cache yet.
BERTH_INLINE void packed_line_as(packed_kind kind, const packed_chunk *all, char *widened,
                                 const packed_line *before) {
    const packed_shape shape = {kind, DOT_BF16, 0, 0, PACKED_VECTORS};
    uint8_t table[PACKED_TABLE]; // as in packed_widen_as
    packed_chunk of = *all;
    memcpy(table, all->table, sizeof table);
    of.table = table;
    const int64_t most = packed_line_steps(kind);
    float *panels[2] = {(float *)(void *)widened, (float *)(void *)(widened + MATRIX_STEP)};
    int64_t step = 0;
    BERTH_UNROLL
    for (int quarter = 0; quarter < PACKED_QUARTERS; ++quarter) {
        const int64_t end = at_most((quarter + 1) * most / PACKED_QUARTERS, of.steps);
        for (; step < end; ++step) {
            packed_widen_step(shape, &of, step, NULL, panels);
        }
        if (before->x) {
            packed_add_quarter(before, quarter);
        }
    }
    if (of.steps < most) {
        packed_fill_line(widened, of.steps * packed_words(shape));
    }
}

#define PACKED_LINE(kind)                                                                          \
    static void packed_line_of_##kind(const packed_chunk *of, char *widened,                       \
                                      const packed_line *before) {                                 \
        packed_line_as(kind, of, widened, before);                                                 \
    }
PACKED_LINE(PACKED_U4)
PACKED_LINE(PACKED_U8)
PACKED_LINE(PACKED_E4M3)

// Where a group's sums are kept.
static inline float *packed_kept(const packed_job *in, const packed_room *room, int64_t group,
                                 int64_t panel) {
    return packed_sums_at(in, room->sums, group % 2, panel);
}

// The sums of a group that is complete. Those before it go to the totals: of this one they are
// still on their way to memory.
static inline void packed_keep_group(const packed_job *in, const packed_groups *by, int64_t group,
                                     const packed_room *room) {
    berth_matrix_keep(packed_kept(in, room, group, 0), 0);
    berth_matrix_keep(packed_kept(in, room, group, 1), 1);
    berth_matrix_zero();
    if (group > 0) {
        packed_add_group(in, by, group - 1, packed_kept(in, room, group - 1, 0));
    }
}

// All rows by one pair of panels, group after group.
static inline void packed_by_matrix(const packed_job *in, const packed_groups *by,
                                    const uint8_t *codes, const packed_room *room) {
    static void (*const lines[])(const packed_chunk *, char *, const packed_line *) = {
        [PACKED_U4] = packed_line_of_PACKED_U4,
        [PACKED_U8] = packed_line_of_PACKED_U8,
        [PACKED_E4M3] = packed_line_of_PACKED_E4M3,
    };
    const packed *self = in->self;
    const int64_t most = packed_line_steps(self->kind);
    char *widened = (char *)room->widened;
    char *other = widened + PACKED_STEP;
    packed_line before = {NULL, NULL};
    berth_matrix_zero();
    for (int64_t group = 0; group < self->groups; ++group) {
        const berth_span steps = packed_group_steps(self, group);
        for (int64_t step = steps.first; step < steps.end; step += most) {
            const berth_span line = {step, at_most(step + most, steps.end)};
            const packed_chunk chunk = packed_chunk_of(in, codes, line);
            char *const to = before.widened == widened ? other : widened;
            lines[self->kind](&chunk, to, &before);
            before = (packed_line){(const char *)chunk.x, to};
            if (step == steps.first && group > 0) {
                packed_keep_group(in, by, group - 1, room);
            }
        }
    }
    for (int quarter = 0; quarter < PACKED_QUARTERS; ++quarter) {
        packed_add_quarter(&before, quarter);
    }
    const int64_t last = self->groups - 1;
    packed_keep_group(in, by, last, room);
    packed_add_group(in, by, last, packed_kept(in, room, last, 0));
}

#endif
