// SPDX-License-Identifier: Apache-2.0
// The functions of kernels/recurrence.h over vectors, and states whose channels are the lanes.
#ifndef BERTH_KERNELS_CPU_RECURRENCE_LANES_H
#define BERTH_KERNELS_CPU_RECURRENCE_LANES_H

#include <cpu/cpu.h>
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

// The rows of a span, one per channel and at most BERTH_LANES, with the channels as lanes: out[j]
// has element j of each. Lanes behind the span are zero, and not stored.
BERTH_INLINE void berth_load_columns(const berth_tensor *from, berth_span span, int64_t length,
                                     berth_vec *out) {
    const berth_rows rows = berth_rows_of(from);
    for (int64_t j = 0; j < length; ++j) {
        float column[BERTH_LANES] = {0};
        for (int64_t lane = 0; lane < span.end - span.first; ++lane) {
            column[lane] = berth_load_at(berth_rows_at(&rows, span.first + lane), from->dtype, j);
        }
        out[j] = berth_vec_load(column);
    }
}

BERTH_INLINE void berth_store_columns(const berth_tensor *to, berth_span span, int64_t length,
                                      const berth_vec *columns) {
    const berth_rows rows = berth_rows_of(to);
    for (int64_t lane = 0; lane < span.end - span.first; ++lane) {
        void *row = berth_rows_at(&rows, span.first + lane);
        for (int64_t j = 0; j < length; ++j) {
            berth_store_at(row, to->dtype, j, columns[j][lane]);
        }
    }
}

#endif
