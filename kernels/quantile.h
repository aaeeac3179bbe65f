// SPDX-License-Identifier: Apache-2.0
// The quantile of the normal distribution: x with P(normal < x) = share, for the cutoff of sparse
// activations. Halving an interval is slow and exact.
#ifndef BERTH_KERNELS_QUANTILE_H
#define BERTH_KERNELS_QUANTILE_H

#include <math.h>

static inline double berth_normal_quantile(double share) {
    double low = -40;
    double high = 40;
    while (share != 0.5 && high - low > 0x1p-60) {
        const double middle = low + (high - low) / 2;
        if (middle == low || middle == high) {
            break;
        }
        *(0.5 * erfc(-middle * 0.70710678118654752440) < share ? &low : &high) = middle;
    }
    return low + (high - low) / 2;
}

#endif
