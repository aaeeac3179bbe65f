// SPDX-License-Identifier: Apache-2.0
// What the kernels of ropes share: pairs of a head turned by cosines and sines (rope_circle.h).
#ifndef BERTH_KERNELS_CPU_ROPE_TURN_H
#define BERTH_KERNELS_CPU_ROPE_TURN_H

#include <cpu/reads.h>
#include <cpu/rope_circle.h>
#include <cpu/sweep.h>

// ---- one head -----------------------------------------------------------------------------------

// A head and what it becomes, cosines [half] and behind them sines [half].
typedef struct rope_head {
    const float *circle;
    const char *x;
    char *y;
    int64_t half; // pairs
    berth_ahead ahead;
} rope_head;

// Why: measured, half of the time the loop waits for what the processor foresees too late. The
// next token's heads, into the second cache, are too far: 0.81 of a copy's speed, this is 0.97.
BERTH_INLINE void rope_fetch(const rope_head *of, berth_sweep_kind as, int64_t first) {
    berth_fetch(of->x, as.dtype, first, 1, of->ahead);
}

// The first and the second members of pairs.
typedef struct rope_members {
    berth_vec one;
    berth_vec two;
} rope_members;

// A vector of points of a circle.
typedef struct rope_points {
    berth_vec cosine;
    berth_vec sine;
} rope_points;

BERTH_INLINE rope_points rope_points_at(const rope_head *of, int64_t pair) {
    return (rope_points){
        .cosine = berth_vec_load(of->circle + pair),
        .sine = berth_vec_load(of->circle + of->half + pair),
    };
}

BERTH_INLINE rope_members rope_turned(rope_points by, berth_vec one, berth_vec two) {
    return (rope_members){
        .one = one * by.cosine - two * by.sine,
        .two = two * by.cosine + one * by.sine,
    };
}

// bf16, by members of pairs of columns.
BERTH_INLINE void rope_store_pairs(berth_sweep_kind as, char *y, int64_t first, berth_vec low,
                                   berth_vec high) {
    const berth_sweep_kind whole = {.dtype = BERTH_DTYPE_F32, .is_past = as.is_past};
    berth_sweep_store(whole, y + 2 * first, 0, berth_sweep_pairs_of(as, low, high));
}

// bf16 by pairs of columns from `first` on, the circle in the order of rope_order.
BERTH_INLINE void rope_halves_by_pairs(const rope_head *of, berth_sweep_kind as, int64_t first,
                                       rope_points even, rope_points odd) {
    const int64_t second = of->half + first;
    rope_fetch(of, as, first);
    rope_fetch(of, as, second);
    const berth_vec a = berth_vec_load(of->x + 2 * first);
    const berth_vec b = berth_vec_load(of->x + 2 * second);
    const rope_members low = rope_turned(even, berth_vec_first_of(a), berth_vec_first_of(b));
    const rope_members high = rope_turned(odd, berth_vec_second_of(a), berth_vec_second_of(b));
    rope_store_pairs(as, of->y, first, low.one, high.one);
    rope_store_pairs(as, of->y, second, low.two, high.two);
}

BERTH_INLINE void rope_halves_at(const rope_head *of, berth_sweep_kind as, int64_t first,
                                 rope_points by) {
    const int64_t second = of->half + first;
    rope_fetch(of, as, first);
    rope_fetch(of, as, second);
    const rope_members y = rope_turned(by, berth_vec_load_as(of->x, as.dtype, first),
                                       berth_vec_load_as(of->x, as.dtype, second));
    berth_sweep_store(as, of->y, first, y.one);
    berth_sweep_store(as, of->y, second, y.two);
}

BERTH_INLINE void rope_halves_rest(const rope_head *of, berth_sweep_kind as, int64_t first) {
    const int64_t half = of->half;
    const int64_t rest = half - first;
    const rope_points by = {
        .cosine = berth_vec_load_part(of->circle, BERTH_DTYPE_F32, first, rest),
        .sine = berth_vec_load_part(of->circle, BERTH_DTYPE_F32, half + first, rest),
    };
    const rope_members y = rope_turned(by, berth_vec_load_part(of->x, as.dtype, first, rest),
                                       berth_vec_load_part(of->x, as.dtype, half + first, rest));
    berth_vec_store_part(of->y, as.dtype, first, rest, y.one);
    berth_vec_store_part(of->y, as.dtype, half + first, rest, y.two);
}

// Pair i is (i, half + i).
BERTH_INLINE void rope_halves(const rope_head *of, berth_sweep_kind as) {
    int64_t i = 0;
    if (rope_is_by_pairs(as.dtype, of->half)) {
        for (; i < of->half; i += 2 * BERTH_LANES) {
            rope_halves_by_pairs(of, as, i, rope_points_at(of, i),
                                 rope_points_at(of, i + BERTH_LANES));
        }
        return;
    }
    for (; i + BERTH_LANES <= of->half; i += BERTH_LANES) {
        rope_halves_at(of, as, i, rope_points_at(of, i));
    }
    if (i < of->half) {
        rope_halves_rest(of, as, i);
    }
}

BERTH_INLINE void rope_neighbours_at(const rope_head *of, berth_sweep_kind as, int64_t pair) {
    rope_fetch(of, as, 2 * pair);
    if (as.dtype == BERTH_DTYPE_BF16) {
        const berth_vec x = berth_vec_load(of->x + 4 * pair);
        const rope_members y =
            rope_turned(rope_points_at(of, pair), berth_vec_first_of(x), berth_vec_second_of(x));
        rope_store_pairs(as, of->y, 2 * pair, y.one, y.two);
        return;
    }
    const berth_vec low = berth_vec_load_as(of->x, as.dtype, 2 * pair);
    const berth_vec high = berth_vec_load_as(of->x, as.dtype, 2 * pair + BERTH_LANES);
    const rope_members y =
        rope_turned(rope_points_at(of, pair), berth_vec_even(low, high), berth_vec_odd(low, high));
    berth_sweep_store(as, of->y, 2 * pair, berth_vec_low(y.one, y.two));
    berth_sweep_store(as, of->y, 2 * pair + BERTH_LANES, berth_vec_high(y.one, y.two));
}

// Pair i is (2i, 2i + 1).
BERTH_INLINE void rope_neighbours(const rope_head *of, berth_sweep_kind as) {
    int64_t i = 0;
    for (; i + BERTH_LANES <= of->half; i += BERTH_LANES) {
        rope_neighbours_at(of, as, i);
    }
    for (; i < of->half; ++i) {
        const float cosine = of->circle[i];
        const float sine = of->circle[of->half + i];
        const float x1 = berth_load_at(of->x, as.dtype, 2 * i);
        const float x2 = berth_load_at(of->x, as.dtype, 2 * i + 1);
        berth_store_at(of->y, as.dtype, 2 * i, x1 * cosine - x2 * sine);
        berth_store_at(of->y, as.dtype, 2 * i + 1, x2 * cosine + x1 * sine);
    }
}

// ---- heads of a token ---------------------------------------------------------------------------

#define ROPE_HELD 64 // pairs of a head of 128, the common width

// Heads that one circle turns, `from_step` and `to_step` bytes apart.
typedef struct rope_heads {
    rope_head first;
    int64_t from_step;
    int64_t to_step;
    int64_t count;
    int64_t is_neox; // by halves, else by neighbours
    int is_past;     // full vectors are stored past the caches where a head's place allows it
} rope_heads;

// One of them by halves of ROPE_HELD pairs.
BERTH_INLINE void rope_head_held(const rope_head *of, berth_sweep_kind as,
                                 const rope_points *held) {
    BERTH_UNROLL
    for (int64_t i = 0; i < ROPE_HELD; i += 2 * BERTH_LANES) {
        const rope_points *by = held + i / BERTH_LANES;
        if (as.dtype == BERTH_DTYPE_BF16) {
            rope_halves_by_pairs(of, as, i, by[0], by[1]);
        } else {
            rope_halves_at(of, as, i, by[0]);
            rope_halves_at(of, as, i + BERTH_LANES, by[1]);
        }
    }
}

// What turns them stays in registers from head to head. Out of the caches that takes two thirds of
// the time.
BERTH_INLINE void rope_turn_held(const rope_heads *of, berth_sweep_kind as) {
    rope_points held[ROPE_HELD / BERTH_LANES];
    rope_head head = of->first;
    head.half = ROPE_HELD;
    BERTH_UNROLL
    for (int64_t i = 0; i < ROPE_HELD; i += BERTH_LANES) {
        held[i / BERTH_LANES] = rope_points_at(&head, i);
    }
    for (int64_t k = 0; k < of->count; ++k, head.x += of->from_step, head.y += of->to_step) {
        rope_head_held(&head, as, held);
    }
}

BERTH_INLINE void rope_turn_as(const rope_heads *of, berth_sweep_kind as) {
    rope_head head = of->first;
    if (of->is_neox && head.half == ROPE_HELD && as.dtype != BERTH_DTYPE_F16) {
        rope_turn_held(of, as);
        return;
    }
    for (int64_t i = 0; i < of->count; ++i, head.x += of->from_step, head.y += of->to_step) {
        if (of->is_neox) {
            rope_halves(&head, as);
        } else {
            rope_neighbours(&head, as);
        }
    }
}

BERTH_INLINE void rope_turn_of(const rope_heads *of, berth_sweep_kind as) {
    const int64_t size = (int64_t)sizeof(berth_vec);
    if (of->is_past && of->first.half % BERTH_LANES == 0 && of->to_step % size == 0 &&
        berth_vec_can_pass(of->first.y)) {
        as.is_past = 1;
        rope_turn_as(of, as);
    } else {
        rope_turn_as(of, as);
    }
}

static inline void rope_turn(const rope_heads *of, berth_dtype dtype) {
    const berth_sweep_kind bf16 = {.dtype = BERTH_DTYPE_BF16, .is_exact = 1};
    const berth_sweep_kind joined = {.dtype = BERTH_DTYPE_BF16, .is_exact = 1, .is_joined = 1};
    if (dtype == BERTH_DTYPE_F32) {
        rope_turn_of(of, (berth_sweep_kind){.dtype = BERTH_DTYPE_F32});
    } else if (dtype == BERTH_DTYPE_BF16 && berth_vec_has_dot()) {
        rope_turn_of(of, joined);
    } else if (dtype == BERTH_DTYPE_BF16) {
        rope_turn_of(of, bf16);
    } else {
        rope_turn_of(of, (berth_sweep_kind){.dtype = BERTH_DTYPE_F16});
    }
}

#endif
