// SPDX-License-Identifier: Apache-2.0
// The running softmax of paged_attention: how a row of scores becomes weights, and how the results
// over two ranges of keys become one.
#ifndef BERTH_KERNELS_CPU_ATTENTION_SOFTMAX_H
#define BERTH_KERNELS_CPU_ATTENTION_SOFTMAX_H

#include <cpu/attention_tile.h>
#include <cpu/cpu.h>

#include <math.h>

// Of some rows, over the keys seen so far: sum = Σ e^(score − largest) · value and
// total = Σ e^(score − largest).
typedef struct softmax {
    float *sums; // [rows, stride]
    float *largest;
    float *totals;
    int64_t rows;
    int64_t stride;
} softmax;

static inline void softmax_begin(const softmax *self) {
    memset(self->sums, 0, (size_t)(self->rows * self->stride) * sizeof(float));
    for (int64_t row = 0; row < self->rows; ++row) {
        self->largest[row] = -INFINITY;
        self->totals[row] = 0;
    }
}

// What is subtracted from scores: without any, nothing, so that −∞ weighs 0.
static inline float subtrahend(float largest) {
    return largest == -INFINITY ? 0 : largest;
}

// From score = query·key to what the softmax is taken of.
typedef struct adjustment {
    float scale;
    float soft_cap; // 0: none
    float slope;    // of alibi
    float distance; // of the tile's first key
} adjustment;

// tanh as 1 − 2/(e^2x + 1): its error is one of the last places of 1, as the soft cap multiplies
// it, that is one of the largest score.
static inline void adjust(float *scores, const adjustment *by) {
    for (int64_t i = 0; i < KEYS; ++i) {
        scores[i] *= by->scale;
    }
    if (by->soft_cap > 0) {
        const berth_vec cap = berth_vec_of(by->soft_cap);
        const berth_vec one = berth_vec_of(1);
        const berth_vec two = berth_vec_of(2);
        for (int64_t i = 0; i < KEYS; i += BERTH_LANES) {
            const berth_vec power = berth_vec_exp(two * (berth_vec_load(scores + i) / cap));
            berth_vec_store(scores + i, cap * (one - two / (power + one)));
        }
    }
    if (by->slope != 0) {
        for (int64_t i = 0; i < KEYS; ++i) {
            scores[i] -= by->slope * (by->distance - (float)i);
        }
    }
}

static inline float largest_of(const float *scores, float start) {
    berth_vec largest = berth_vec_of(start);
    for (int64_t i = 0; i < KEYS; i += BERTH_LANES) {
        largest = berth_vec_max(berth_vec_load(scores + i), largest); // a NaN is none
    }
    return berth_vec_largest(largest);
}

static inline void rescale(const softmax *self, int64_t row, float factor) {
    float *sums = self->sums + row * self->stride;
    for (int64_t i = 0; i < self->stride; i += BERTH_LANES) {
        berth_vec_store(sums + i, berth_vec_load(sums + i) * berth_vec_of(factor));
    }
    self->totals[row] *= factor;
}

// Takes a tile of scores in and leaves its weights, those of keys that the row does not see being
// 0. The values are for the caller to add.
static inline void softmax_weights(const softmax *self, int64_t row, berth_span seen,
                                   float *scores) {
    if (seen.end - seen.first < KEYS) {
        for (int64_t i = 0; i < KEYS; ++i) {
            scores[i] = i >= seen.first && i < seen.end ? scores[i] : -INFINITY;
        }
    }
    const float before = self->largest[row];
    const float largest = largest_of(scores, before);
    const float base = subtrahend(largest);
    if (largest > before) {
        rescale(self, row, berth_exp_f32(before - base));
        self->largest[row] = largest;
    }
    berth_vec sum = berth_vec_of(0);
    for (int64_t i = 0; i < KEYS; i += BERTH_LANES) {
        const berth_vec weight = berth_vec_exp(berth_vec_load(scores + i) - berth_vec_of(base));
        berth_vec_store(scores + i, weight);
        sum = sum + weight;
    }
    self->totals[row] += berth_vec_sum(sum);
}

// Takes the keys in that `next` has seen, all of which come after this one's.
static inline void softmax_merge(const softmax *self, const softmax *next) {
    for (int64_t row = 0; row < self->rows; ++row) {
        const float largest = fmaxf(self->largest[row], next->largest[row]);
        const float mine = berth_exp_f32(self->largest[row] - subtrahend(largest));
        const float theirs = berth_exp_f32(next->largest[row] - subtrahend(largest));
        float *sums = self->sums + row * self->stride;
        const float *added = next->sums + row * next->stride;
        for (int64_t i = 0; i < self->stride; i += BERTH_LANES) {
            berth_vec_store(sums + i, berth_vec_load(sums + i) * berth_vec_of(mine) +
                                          berth_vec_load(added + i) * berth_vec_of(theirs));
        }
        self->totals[row] = self->totals[row] * mine + next->totals[row] * theirs;
        self->largest[row] = largest;
    }
}

// Takes in one more score that has no value.
static inline void softmax_sink(const softmax *self, int64_t row, float score) {
    const float largest = fmaxf(self->largest[row], score);
    rescale(self, row, berth_exp_f32(self->largest[row] - subtrahend(largest)));
    self->totals[row] += berth_exp_f32(score - subtrahend(largest));
    self->largest[row] = largest;
}

// The result of a row, rounded to its dtype.
static inline void softmax_store(const softmax *self, int64_t row, void *to, berth_dtype dtype,
                                 int64_t width) {
    float *sums = self->sums + row * self->stride;
    for (int64_t i = 0; i < self->stride; i += BERTH_LANES) {
        berth_vec_store(sums + i, berth_vec_load(sums + i) / berth_vec_of(self->totals[row]));
    }
    berth_store(to, dtype, 0, width, sums);
}

#endif
