// SPDX-License-Identifier: Apache-2.0
// Scales of f8_e4m3fn, for the references and kernels that quantise: every step is one correctly
// rounded float operation, so codes and scales are the same bits wherever they are computed.
#ifndef BERTH_KERNELS_FP8_H
#define BERTH_KERNELS_FP8_H

#include <tensor.h>

#include <math.h>

// The smallest scale: what is all zero is divided by this.
#define BERTH_F8_LEAST_SCALE ((float)(1.0 / (448.0 * 512.0)))

// The larger, or NaN where one is NaN, as torch's maxima have it.
static inline float berth_max_or_nan(float a, float b) {
    return a != a || a > b ? a : b;
}

// The scale of values whose largest magnitude is `largest`.
static inline float berth_f8_scale(float largest) {
    const float scale = largest / BERTH_F8_MAX;
    return scale < BERTH_F8_LEAST_SCALE ? BERTH_F8_LEAST_SCALE : scale;
}

// The next power of two, as ue8m0 holds it. Why log2f: just above a power of two it rounds down to
// it, and so do the scales that other hosts have stored.
static inline float berth_f8_power_of_two(float scale) {
    return exp2f(ceilf(log2f(scale)));
}

#endif
