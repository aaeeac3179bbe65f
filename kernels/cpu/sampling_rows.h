// SPDX-License-Identifier: Apache-2.0
// What the kernels on logits before a token is drawn share: rows of float32 without gaps.
#ifndef BERTH_KERNELS_CPU_SAMPLING_ROWS_H
#define BERTH_KERNELS_CPU_SAMPLING_ROWS_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <math.h>

#define SAMPLING_PIECE (64 * BERTH_LANES) // logits whose sum is taken in float32

static inline float sampling_largest(const float *logits, int64_t count) {
    berth_vec largest = berth_vec_of(-INFINITY);
    int64_t i = 0;
    for (; i + BERTH_LANES <= count; i += BERTH_LANES) {
        largest = berth_vec_max(berth_vec_load(logits + i), largest);
    }
    float value = berth_vec_largest(largest);
    for (; i < count; ++i) {
        value = logits[i] > value ? logits[i] : value;
    }
    return value;
}

// The sum of e^(logit − largest).
static inline float sampling_sum(const float *logits, int64_t count, float largest) {
    double total = 0;
    for (int64_t first = 0; first < count; first += SAMPLING_PIECE) {
        const int64_t end = first + SAMPLING_PIECE < count ? first + SAMPLING_PIECE : count;
        berth_vec sum = berth_vec_of(0);
        int64_t i = first;
        for (; i + BERTH_LANES <= end; i += BERTH_LANES) {
            sum = sum + berth_vec_exp(berth_vec_load(logits + i) - berth_vec_of(largest));
        }
        total += (double)berth_vec_sum(sum);
        for (; i < end; ++i) {
            total += (double)berth_exp_f32(logits[i] - largest);
        }
    }
    return (float)total;
}

#endif
