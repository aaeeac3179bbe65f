// SPDX-License-Identifier: Apache-2.0
// Scales and codes of i8, for the references and kernels that quantise: every step is one correctly
// rounded float operation, so codes and scales are the same bits wherever they are computed.
#ifndef BERTH_KERNELS_INT8_H
#define BERTH_KERNELS_INT8_H

#include <math.h>
#include <stdint.h>

// Of values whose largest magnitude is `largest`, and what they are multiplied by for it.
static inline float berth_i8_scale(float largest) {
    return largest / 127.0f;
}
// Why not 127 / largest: torch computes that as this product, which is another float now and then.
static inline float berth_i8_factor(float largest) {
    return largest > 0 ? 1.0f / largest * 127.0f : 0.0f;
}

// Rounds to nearest, ties to even, and saturates; a NaN becomes 0.
static inline int8_t berth_to_i8(float value) {
    const float rounded = rintf(value);
    return (int8_t)(rounded > 127.0f    ? 127.0f
                    : rounded < -128.0f ? -128.0f
                    : !isnan(rounded)   ? rounded
                                        : 0.0f);
}

#endif
