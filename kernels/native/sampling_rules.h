// SPDX-License-Identifier: Apache-2.0
// What the ops on logits before a token is drawn share: f32 [sequences, vocabulary] in and out, and
// one value of every option per sequence.
#ifndef BERTH_KERNELS_NATIVE_SAMPLING_RULES_H
#define BERTH_KERNELS_NATIVE_SAMPLING_RULES_H

#include "rules.h"

#include <math.h>

static inline berth_status sampling_infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_f32(site, 0));
    BERTH_RULE_TRY(berth_rule_rank(site, 0, 2));
    BERTH_RULE_TRY(berth_rule_width(site, 0));
    berth_rule_give(out, site->inputs[0]);
    return BERTH_OK;
}

// An option is f32, or an integer where `is_integer`, one for every sequence.
static inline berth_status sampling_option(const berth_op_site *site, uint64_t input,
                                           int is_integer) {
    BERTH_RULE_TRY(is_integer ? berth_rule_integer(site, input) : berth_rule_f32(site, input));
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, site->inputs[0]->dims[0]);
}

// A workspace of two ids or counts for each token of the vocabulary.
static inline uint64_t sampling_two_a_token(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return 2 * (uint64_t)berth_last_dim(site->inputs[0]).b * sizeof(int32_t);
}

static inline float sampling_largest(const float *logits, int64_t count) {
    float largest = -INFINITY;
    for (int64_t i = 0; i < count; ++i) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    return largest;
}

// The sum of e^(logit − largest).
static inline float sampling_sum(const float *logits, int64_t count, float largest) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        sum += (double)expf(logits[i] - largest);
    }
    return (float)sum;
}

#endif
