// SPDX-License-Identifier: Apache-2.0
// The functions of kernels/recurrence.h over vectors.
#ifndef BERTH_KERNELS_CPU_RECURRENCE_LANES_H
#define BERTH_KERNELS_CPU_RECURRENCE_LANES_H

#include <cpu/simd.h>

BERTH_INLINE berth_vec berth_vec_silu(berth_vec x) {
    return x / (berth_vec_exp(-x) + berth_vec_of(1));
}

// ln(1 + e^x) = max(x, 0) + ln(1 + t) with t = e^−|x|, and ln(1 + t) = 2 atanh(t / (2 + t)), whose
// series is below half a last place of ln 2 after seven terms.
BERTH_INLINE berth_vec berth_vec_softplus(berth_vec x) {
    const berth_vec t = berth_vec_exp(-berth_vec_max(x, -x));
    const berth_vec s = t / (t + berth_vec_of(2));
    const berth_vec square = s * s;
    berth_vec sum = berth_vec_of(2.0f / 13);
    sum = berth_vec_fma(sum, square, berth_vec_of(2.0f / 11));
    sum = berth_vec_fma(sum, square, berth_vec_of(2.0f / 9));
    sum = berth_vec_fma(sum, square, berth_vec_of(2.0f / 7));
    sum = berth_vec_fma(sum, square, berth_vec_of(2.0f / 5));
    sum = berth_vec_fma(sum, square, berth_vec_of(2.0f / 3));
    sum = berth_vec_fma(sum, square, berth_vec_of(2.0f));
    return berth_vec_fma(sum, s, berth_vec_max(x, berth_vec_of(0)));
}

#endif
