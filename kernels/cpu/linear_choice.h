// SPDX-License-Identifier: Apache-2.0
// Which product of bf16 is faster on this machine: measured, because the dot product of pairs costs
// one processor half of what floats cost and another one twice as much; so, too, whether matrices
// are worth it.
#ifndef BERTH_KERNELS_CPU_LINEAR_CHOICE_H
#define BERTH_KERNELS_CPU_LINEAR_CHOICE_H

#include <cpu/cpu.h>

#include <cpu/linear_matrix.h>
#include <cpu/places.h>

#define TRIED_PAIRS 64
#define TRIALS      256 // a millisecond in all: a neighbour may hold the core back for some of it

static inline int64_t nanoseconds_of(tile_fn function, const tile *work) {
    const int64_t start = nanoseconds_now();
    function(work);
    function(work);
    return nanoseconds_now() - start;
}

// The better of two products of bf16 by so many rows each: 1 the first, -1 the second. Takes the
// best time of a row of several trials in turns.
static inline int choose_product(const int products[2], const int64_t rows[2]) {
    _Alignas(64) float weight[TRIED_PAIRS * PANEL] = {0};
    _Alignas(64) float x[2 * TRIED_PAIRS * MOST_TILE_ROWS] = {0};
    float sums[MOST_TILE_ROWS * PANEL] = {0};
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    for (int trial = 0; trial < 2 * TRIALS; ++trial) {
        const int which = trial % 2;
        const tile work = {
            .weight = (const char *)weight,
            .x = x,
            .sums = sums,
            .next = (const char *)weight,
            .pairs = TRIED_PAIRS,
            .rows = rows[which],
            .half = tile_half(rows[which]),
            .is_first = 1,
        };
        tiles_begin(products[which], rows[which]);
        best[which] =
            at_most(nanoseconds_of(tile_of(products[which], rows[which]), &work), best[which]);
        tiles_end(products[which]);
    }
    return best[0] * rows[1] < best[1] * rows[0] ? 1 : -1;
}

static inline int choose_bf16_product(void) {
    const int products[2] = {DOT_BF16, TIMES_BF16};
    const int64_t rows[2] = {BERTH_TILE_ROWS, BERTH_TILE_ROWS};
    return berth_vec_has_dot() ? choose_product(products, rows) : -1;
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

// Bytes are twice as fast as bf16 in either way, so that these are measured alone.
static inline int choose_matrices(berth_cpu *cpu) {
    const int other = product_of_floats(BERTH_DTYPE_BF16, BERTH_DTYPE_BF16, cpu);
    const int products[2] = {MATRIX_BF16, other};
    const int64_t rows[2] = {MATRIX_BLOCK, BERTH_TILE_ROWS};
    return choose_product(products, rows);
}

// Whether products of matrices are faster than others. In a create, too.
static inline int matrices_win(berth_cpu *cpu) {
    if (cpu->matrices_win == 0) {
        cpu->matrices_win = berth_matrix_is_there() ? choose_matrices(cpu) : -1;
    }
    return cpu->matrices_win > 0 && berth_matrix_is_there();
}

// As product_of_floats, for kernels that multiply matrices where that is faster.
static inline int product_of_panels(berth_dtype weight, berth_dtype x, berth_cpu *cpu) {
    return weight == BERTH_DTYPE_BF16 && x == BERTH_DTYPE_BF16 && matrices_win(cpu)
               ? MATRIX_BF16
               : product_of_floats(weight, x, cpu);
}

#endif
