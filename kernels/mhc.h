// SPDX-License-Identifier: Apache-2.0
// The small matrices of hyper-connections (native/mhc_rules.h), for references and kernels: how
// streams are mixed among each other.
#ifndef BERTH_KERNELS_MHC_H
#define BERTH_KERNELS_MHC_H

#include <math.h>
#include <stdint.h>

static inline float mhc_sigmoid(float value) {
    return 1.0f / (1.0f + expf(-value));
}

// Divides rows, or columns, by their sum + eps.
static inline void mhc_divide(float *comb, int64_t streams, int is_column, float eps) {
    const int64_t step = is_column ? streams : 1;
    for (int64_t i = 0; i < streams; ++i) {
        float *first = comb + i * (is_column ? 1 : streams);
        float sum = eps;
        for (int64_t j = 0; j < streams; ++j) {
            sum += first[j * step];
        }
        for (int64_t j = 0; j < streams; ++j) {
            first[j * step] /= sum;
        }
    }
}

static inline void mhc_softmax(float *row, int64_t count, float eps) {
    float largest = row[0];
    float sum = 0;
    for (int64_t i = 1; i < count; ++i) {
        largest = row[i] > largest ? row[i] : largest;
    }
    for (int64_t i = 0; i < count; ++i) {
        row[i] = expf(row[i] - largest);
        sum += row[i];
    }
    for (int64_t i = 0; i < count; ++i) {
        row[i] = row[i] / sum + eps;
    }
}

// comb [streams, streams], in place; `repeat` is at least 1.
static inline void mhc_sinkhorn(float *comb, int64_t streams, float eps, int64_t repeat) {
    for (int64_t i = 0; i < streams; ++i) {
        mhc_softmax(comb + i * streams, streams, eps);
    }
    mhc_divide(comb, streams, 1, eps);
    for (int64_t i = 1; i < repeat; ++i) {
        mhc_divide(comb, streams, 0, eps);
        mhc_divide(comb, streams, 1, eps);
    }
}

#endif
