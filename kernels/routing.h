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

// ---- groups -------------------------------------------------------------------------------------

// What the ops' attributes say.
typedef struct berth_routing {
    int scoring;
    int is_renormalised;
    int64_t topk;
    float factor;
    int64_t groups; // 1 where the op knows none
    int64_t kept_groups;
} berth_routing;

static inline berth_routing berth_routing_read(const berth_op_site *site) {
    const berth_attribute *groups = berth_site_attribute(site, "num_expert_group");
    const berth_attribute *kept = berth_site_attribute(site, "topk_group");
    return (berth_routing){
        .scoring = berth_scoring_of(berth_site_attribute(site, "scoring_func")->str),
        .is_renormalised = berth_site_attribute(site, "renormalize")->i64 != 0,
        .topk = berth_site_attribute(site, "topk")->i64,
        .factor = (float)berth_site_attribute(site, "routed_scaling_factor")->f64,
        .groups = groups && groups->i64 > 0 ? groups->i64 : 1,
        .kept_groups = kept ? kept->i64 : 1,
    };
}

// What a group counts: its largest value, or the sum of the two, rounded to the dtype.
static inline float berth_group_score(const float *values, int64_t count, int is_sum,
                                      berth_dtype dtype) {
    float first = -INFINITY;
    float second = -INFINITY;
    for (int64_t i = 0; i < count; ++i) {
        const float lower = values[i] > first ? first : values[i];
        second = lower > second ? lower : second;
        first = values[i] > first ? values[i] : first;
    }
    return is_sum ? berth_round_to(dtype, first + second) : first;
}

// Every group but the best ones gets a choice of minus infinity. `counts` [groups] holds what each
// counts.
static inline void berth_keep_groups(const berth_routing *self, const float *counts, int64_t size,
                                     float *choice) {
    for (int64_t group = 0; group < self->groups; ++group) {
        int64_t better = 0;
        for (int64_t other = 0; other < self->groups; ++other) {
            better +=
                counts[other] > counts[group] || (counts[other] == counts[group] && other < group);
        }
        for (int64_t i = 0; i < size && better >= self->kept_groups; ++i) {
            choice[group * size + i] = -INFINITY;
        }
    }
}

// The weights of the chosen, every step rounded to the dtype.
static inline void berth_weigh(const berth_routing *self, berth_dtype dtype, const float *scores,
                               const int32_t *ids, float *weights) {
    float sum = 0;
    for (int64_t i = 0; i < self->topk; ++i) {
        sum += scores[ids[i]];
    }
    sum = berth_round_to(dtype, sum);
    for (int64_t i = 0; i < self->topk; ++i) {
        weights[i] = scores[ids[i]];
        if (self->is_renormalised) {
            weights[i] = berth_round_to(dtype, weights[i] / sum);
        }
        weights[i] = berth_round_to(dtype, weights[i] * self->factor);
    }
}

// The same in f32, of scores none of which is negative; a sum of zero divides nothing.
static inline void berth_weigh_positive(const berth_routing *self, const float *scores,
                                        const int32_t *ids, float *weights) {
    berth_routing routing = *self;
    float largest = 0;
    for (int64_t i = 0; i < self->topk; ++i) {
        largest = scores[ids[i]] > largest ? scores[ids[i]] : largest;
    }
    routing.is_renormalised = self->is_renormalised && largest > 0;
    berth_weigh(&routing, BERTH_DTYPE_F32, scores, ids, weights);
}

#endif
