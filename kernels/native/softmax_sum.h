// SPDX-License-Identifier: Apache-2.0
// The sum of value rows weighted by the softmax of their scores, taken in one row at a time, for
// the references of attention: the sums are kept relative to the largest score so far.
#ifndef BERTH_KERNELS_NATIVE_SOFTMAX_SUM_H
#define BERTH_KERNELS_NATIVE_SOFTMAX_SUM_H

#include <tensor.h>

#include <math.h>

typedef struct berth_softmax_sum {
    double *sums; // [width], the caller's room
    int64_t width;
    float largest;
    int64_t taken; // scores
    double total;  // of the weights
} berth_softmax_sum;

static inline berth_softmax_sum berth_softmax_begin(double *room, int64_t width) {
    memset(room, 0, (size_t)width * sizeof *room);
    return (berth_softmax_sum){.sums = room, .width = width, .largest = -INFINITY};
}

// A score and its value row; a NULL row counts in the total only, as a sink does.
static inline void berth_softmax_take(berth_softmax_sum *self, float score, const void *value,
                                      berth_dtype dtype) {
    if (score > self->largest) {
        const double factor = exp((double)self->largest - (double)score);
        for (int64_t i = 0; i < self->width; ++i) {
            self->sums[i] *= factor;
        }
        self->total *= factor;
        self->largest = score;
    }
    ++self->taken;
    const double weight = score == -INFINITY ? 0 : exp((double)score - (double)self->largest);
    self->total += weight;
    for (int64_t i = 0; i < self->width && value; ++i) {
        self->sums[i] += weight * (double)berth_load_at(value, dtype, i);
    }
}

// Element i of the weighted mean; 0 when nothing was taken, NaN when every score was −infinity.
static inline float berth_softmax_at(const berth_softmax_sum *self, int64_t i) {
    return self->taken > 0 ? (float)(self->sums[i] / self->total) : 0.0f;
}

static inline void berth_softmax_store(const berth_softmax_sum *self, void *row,
                                       berth_dtype dtype) {
    for (int64_t i = 0; i < self->width; ++i) {
        berth_store_at(row, dtype, i, berth_softmax_at(self, i));
    }
}

#endif
