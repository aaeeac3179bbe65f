// SPDX-License-Identifier: Apache-2.0
// Which product of bf16 is faster on this machine: measured, because the dot product of pairs costs
// one processor half of what floats cost and another one twice as much.
#ifndef BERTH_KERNELS_CPU_LINEAR_CHOICE_H
#define BERTH_KERNELS_CPU_LINEAR_CHOICE_H

#include <cpu/linear_tile.h>

#include <time.h>

#define TRIED_PAIRS 64
#define TRIALS      32 // some 100 microseconds in all

static inline int64_t nanoseconds_now(void) {
    struct timespec now = {0};
    (void)timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

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

#endif
