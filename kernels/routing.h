// SPDX-License-Identifier: Apache-2.0
// How tokens choose their experts, for the references and kernels of topk_softmax and grouped_topk.
#ifndef BERTH_KERNELS_ROUTING_H
#define BERTH_KERNELS_ROUTING_H

#include <berth/op.h>

#include <tensor.h>

#include <math.h>

// By `scoring_func`; NONE for a text that is none of them.
enum {
    BERTH_SCORING_NONE,
    BERTH_SCORING_SOFTMAX,
    BERTH_SCORING_SIGMOID,
    BERTH_SCORING_SQRTSOFTPLUS,
};

static inline int berth_scoring_of(const char *name) {
    return strcmp(name, "softmax") == 0        ? BERTH_SCORING_SOFTMAX
           : strcmp(name, "sigmoid") == 0      ? BERTH_SCORING_SIGMOID
           : strcmp(name, "sqrtsoftplus") == 0 ? BERTH_SCORING_SQRTSOFTPLUS
                                               : BERTH_SCORING_NONE;
}

static inline void berth_score_softmax(float *values, int64_t count) {
    float largest = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        largest = values[i] > largest ? values[i] : largest;
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] = expf(values[i] - largest);
        sum += (double)values[i];
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] /= (float)sum;
    }
}

// Turns the logits of one token into scores, in place.
static inline void berth_score(int scoring, float *values, int64_t count) {
    if (scoring == BERTH_SCORING_SOFTMAX) {
        berth_score_softmax(values, count);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        const float softplus =
            values[i] > 20 ? values[i] : log1pf(expf(values[i])); // the limit is torch's
        values[i] = scoring == BERTH_SCORING_SIGMOID ? 1 / (1 + expf(-values[i])) : sqrtf(softplus);
    }
}

// The indices of the k largest values, the largest first, of equal ones the one that comes first;
// k is at most count. A NaN is chosen last. `chosen` [count] is room.
static inline void berth_choose(const float *values, int64_t count, int64_t k, char *chosen,
                                int32_t *ids) {
    memset(chosen, 0, (size_t)count);
    for (int64_t i = 0; i < k; ++i) {
        int64_t best = -1;
        for (int64_t j = 0; j < count; ++j) {
            const int is_better = best < 0 || values[j] > values[best] ||
                                  (values[best] != values[best] && values[j] == values[j]);
            best = !chosen[j] && is_better ? j : best;
        }
        chosen[best] = 1;
        ids[i] = (int32_t)best;
    }
}

#endif
