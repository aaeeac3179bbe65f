// SPDX-License-Identifier: Apache-2.0
// The magnitudes of a row, for the kernels that make a scale of the largest one.
#ifndef BERTH_KERNELS_CPU_MAGNITUDE_H
#define BERTH_KERNELS_CPU_MAGNITUDE_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

BERTH_INLINE berth_vec_ints berth_vec_magnitude(berth_vec x) {
    return (berth_vec_ints)((berth_vec_bits)x & 0x7fffffffu);
}

// The largest magnitude of some columns of a row. Why integers: magnitudes order as they do, and a
// NaN is above all of them.
BERTH_INLINE float berth_vec_largest_as(const void *row, berth_dtype dtype, berth_span columns) {
    berth_vec_ints largest[2] = {{0}};
    int64_t i = columns.first;
    for (; i + 2 * BERTH_LANES <= columns.end; i += 2 * BERTH_LANES) {
        BERTH_UNROLL
        for (int k = 0; k < 2; ++k) {
            const berth_vec x = berth_vec_load_as(row, dtype, i + k * BERTH_LANES);
            largest[k] = berth_vec_larger(berth_vec_magnitude(x), largest[k]);
        }
    }
    for (; i < columns.end; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(row, dtype, i, columns.end);
        largest[0] = berth_vec_larger(berth_vec_magnitude(x), largest[0]);
    }
    largest[0] = berth_vec_larger(largest[0], largest[1]);
    BERTH_UNROLL
    for (int round = 1; round < BERTH_LANES; round *= 2) {
        const berth_vec folded = (berth_vec)largest[0];
        largest[0] = berth_vec_larger((berth_vec_ints)berth_vec_low(folded, folded),
                                      (berth_vec_ints)berth_vec_high(folded, folded));
    }
    return berth_float_of_bits((uint32_t)largest[0][0]);
}

static inline float berth_vec_largest_of(const void *row, berth_dtype dtype, berth_span columns) {
    return dtype == BERTH_DTYPE_F32    ? berth_vec_largest_as(row, BERTH_DTYPE_F32, columns)
           : dtype == BERTH_DTYPE_BF16 ? berth_vec_largest_as(row, BERTH_DTYPE_BF16, columns)
                                       : berth_vec_largest_as(row, BERTH_DTYPE_F16, columns);
}

#endif
