// SPDX-License-Identifier: Apache-2.0
// Which product of bf16 is faster on this machine: measured, because the dot product of pairs costs
// one processor half of what floats cost and another one twice as much.
#ifndef BERTH_KERNELS_CPU_LINEAR_CHOICE_H
#define BERTH_KERNELS_CPU_LINEAR_CHOICE_H

#include <cpu/cpu.h>

#include <cpu/linear_tile.h>
#include <cpu/places.h>

#define TRIED_PAIRS 64
#define TRIALS      32 // some 100 microseconds in all

static inline int64_t nanoseconds_of(tile_fn function, const tile *work) {
    const int64_t start = nanoseconds_now();
    function(work);
    function(work);
    return nanoseconds_now() - start;
}

// 1 when the dot product wins, -1 when not. Takes the best of several trials in turns.
static inline int64_t choose_bf16_product(void) {
    _Alignas(64) float weight[TRIED_PAIRS * PANEL] = {0};
    _Alignas(64) float x[2 * TRIED_PAIRS * BERTH_TILE_ROWS] = {0};
    float sums[BERTH_TILE_ROWS * PANEL] = {0};
    const tile work = {
        .weight = (const char *)weight,
        .x = x,
        .sums = sums,
        .pairs = TRIED_PAIRS,
        .is_first = 1,
    };
    int64_t widened = INT64_MAX;
    int64_t dot = INT64_MAX;
    for (int trial = 0; trial < TRIALS && berth_vec_has_dot(); ++trial) {
        widened = at_most(nanoseconds_of(tiles[TIMES_BF16][BERTH_TILE_ROWS], &work), widened);
        dot = at_most(nanoseconds_of(tiles[DOT_BF16][BERTH_TILE_ROWS], &work), dot);
    }
    return dot < widened ? 1 : -1;
}

// How a weight of a float type is multiplied with rows of `x`. In a create: it may measure. What
// the vectors of this build cannot do is never chosen, whatever `cpu` says of it.
static inline int product_of_floats(berth_dtype weight, berth_dtype x, berth_cpu *cpu) {
    if (weight != BERTH_DTYPE_BF16) {
        return weight == BERTH_DTYPE_F32 ? TIMES_F32 : TIMES_F16;
    }
    if (x == BERTH_DTYPE_BF16 && cpu->bf16_dot_wins == 0) {
        cpu->bf16_dot_wins = choose_bf16_product();
    }
    const int is_dot = x == BERTH_DTYPE_BF16 && cpu->bf16_dot_wins > 0 && berth_vec_has_dot();
    return is_dot ? DOT_BF16 : TIMES_BF16;
}

#endif
