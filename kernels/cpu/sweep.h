// SPDX-License-Identifier: Apache-2.0
// What the loops over rows of activations (elementwise.h) do beside their formulas: what they are
// compiled for, stores, and what is fetched ahead.
#ifndef BERTH_KERNELS_CPU_SWEEP_H
#define BERTH_KERNELS_CPU_SWEEP_H

#include <cpu/activation.h>
#include <cpu/simd.h>

// y = formula(x); of gated ops `b` is what stands `width` elements after `a`, of others zero.
typedef berth_vec (*berth_vec_formula)(const berth_activation *self, berth_dtype dtype, berth_vec a,
                                       berth_vec b);

typedef struct berth_sweep {
    const berth_activation *self;
    const berth_op_args *args;
    int64_t width; // of y
    int is_past;
} berth_sweep;

// What a row's loop is compiled for.
typedef struct berth_sweep_kind {
    berth_dtype dtype;
    int is_past;   // its full vectors are stored past the caches
    int is_gated;  // for rows that are one or the other
    int is_joined; // bf16 is rounded by the machine
    int is_exact;  // subnormal results stay what they are
} berth_sweep_kind;

BERTH_INLINE void berth_sweep_store(berth_sweep_kind as, void *y, int64_t first, berth_vec a) {
    if (as.is_past) {
        berth_vec_pass_as(y, as.dtype, first, a);
    } else {
        berth_vec_store_as(y, as.dtype, first, a);
    }
}

// Two vectors, one behind the other.
BERTH_INLINE void berth_sweep_store_two(berth_sweep_kind as, void *y, int64_t first, berth_vec a,
                                        berth_vec b) {
    if (!as.is_joined) {
        berth_sweep_store(as, y, first, a);
        berth_sweep_store(as, y, first + BERTH_LANES, b);
    } else if (as.is_past) {
        berth_vec_store_past((uint16_t *)y + first, berth_vec_join_bf16(a, b));
    } else {
        berth_vec_store((float *)(void *)((uint16_t *)y + first), berth_vec_join_bf16(a, b));
    }
}

#define BERTH_SWEEP_AHEAD   4096 // bytes that are on their way while others are worked at
#define BERTH_SWEEP_Y_AHEAD 1024 // the same of y, whose lines have to come before they are written

// Why: the longer the formula, the fewer of the coming loads the processor sees by itself. Of two
// halves it would not see where those of the next row begin. In 16 bits half as many bytes leave
// time for the way from the second cache, and the first has no room for what both halves need:
// silu_and_mul has 0.94 of a copy's speed that way. In float32 2048 bytes ahead are too few (0.83)
// and the second cache is too far (0.84), 4096 into the first are 0.88.
BERTH_INLINE void berth_sweep_fetch(berth_sweep_kind as, const void *x, const void *y,
                                    int64_t first, int64_t width) {
    const int64_t bytes = BERTH_DTYPE_BITS(as.dtype) / 8;
    if (!as.is_past) {
        __builtin_prefetch((const char *)y + first * bytes + BERTH_SWEEP_Y_AHEAD, 1, 3);
    }
    const int is_far = as.is_gated && as.dtype != BERTH_DTYPE_F32;
    const int64_t half = width * bytes;
    const int64_t at = first * bytes + BERTH_SWEEP_AHEAD;
    const char *ahead = (const char *)x + (as.is_gated && at >= half ? at + half : at);
    if (is_far) {
        BERTH_PREFETCH_FAR(ahead);
        BERTH_PREFETCH_FAR(ahead + half);
    } else {
        BERTH_PREFETCH(ahead);
        if (as.is_gated) {
            BERTH_PREFETCH(ahead + half);
        }
    }
}

// The pairs of results; those of formulas for 8 bits may be 0 where they are subnormal.
BERTH_INLINE berth_vec berth_sweep_pairs_of(berth_sweep_kind as, berth_vec first,
                                            berth_vec second) {
    if (as.is_joined && !(as.is_exact && berth_vec_has_subnormal(first, second))) {
        return berth_vec_mix(berth_vec_join_bf16(first, second));
    }
    return berth_vec_pairs_of(first, second);
}

#endif
