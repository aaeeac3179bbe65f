// SPDX-License-Identifier: Apache-2.0
// Vectors of floats to codes of i8, the same bits as berth_to_i8 gives.
#ifndef BERTH_KERNELS_CPU_INT8_CODES_H
#define BERTH_KERNELS_CPU_INT8_CODES_H

#include <cpu/simd.h>

#include <int8.h>

// The largest magnitude of a row. A NaN is passed over, as the reference does.
BERTH_INLINE float vec_i8_largest(const void *row, berth_dtype dtype, int64_t width) {
    berth_vec largest = berth_vec_of(0);
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(row, dtype, i, width);
        largest = berth_vec_max((berth_vec)((berth_vec_bits)x & 0x7fffffffu), largest);
    }
    return berth_vec_largest(largest);
}

// Codes of numbers that are scaled already; 0 becomes `zero`. Why the bounds come first: they are
// whole numbers, so that it is the same, and what is left can be rounded by adding 1.5 · 2^23,
// which leaves the integer in the lowest bits.
BERTH_INLINE berth_vec_bytes vec_to_i8(berth_vec value, int32_t zero) {
    const berth_vec least = berth_vec_of((float)(-128 - zero));
    const berth_vec most = berth_vec_of((float)(127 - zero));
    const berth_vec kept = berth_vec_min(most, berth_vec_max(least, value)); // or NaN
    const berth_vec_bits codes = (berth_vec_bits)(kept + berth_vec_of(0x1.8p+23f)) + (uint32_t)zero;
    const berth_vec above = most + berth_vec_of(1);
    return berth_vec_narrow_twice(
        (berth_vec_bits)berth_vec_if_less(kept, above, (berth_vec)codes, berth_vec_of(0)));
}

#endif
