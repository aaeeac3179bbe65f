// SPDX-License-Identifier: Apache-2.0
// Logarithms of probabilities of one row, as the model gave it: of the chosen id and the likeliest.
//
// They describe the model and not the sampling: neither temperature nor penalties touch them.
#include <math.h>

#include "worker/sampler.h"

// Keys of the likeliest ids seen so far, in order.
typedef struct ranking {
    uint64_t keys[BERTH_LOGPROBS_MAX];
    size_t count;
    size_t limit;
} ranking;

static float value_of(float logit) {
    return isnan(logit) ? -INFINITY : logit;
}

static double log_of_sum(const float *logits, size_t count) {
    double largest = -INFINITY;
    for (size_t i = 0; i < count; ++i) {
        largest = logits[i] > largest ? (double)logits[i] : largest;
    }
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        sum += exp((double)value_of(logits[i]) - largest);
    }
    return largest + log(sum);
}

static void insert(ranking *best, uint64_t key) {
    size_t at = best->count < best->limit ? best->count++ : best->limit - 1;
    for (; at > 0 && best->keys[at - 1] > key; --at) {
        best->keys[at] = best->keys[at - 1];
    }
    best->keys[at] = key;
}

static void rank(const float *logits, size_t count, ranking *best) {
    for (size_t i = 0; i < count && best->limit > 0; ++i) {
        const uint64_t key = berth_candidate_key(logits[i], i);
        if (best->count < best->limit || key < best->keys[best->limit - 1]) {
            insert(best, key);
        }
    }
}

static int32_t count_likely(const float *logits, size_t count, float chosen) {
    int32_t likely = 0;
    for (size_t i = 0; i < count; ++i) {
        likely += value_of(logits[i]) >= chosen;
    }
    return likely;
}

void berth_logprobs_fill(const float *logits, size_t vocab_size, int32_t token,
                         berth_logprob_row *out) {
    const double total = log_of_sum(logits, vocab_size);
    ranking best = {.limit = out->entries - 1};
    rank(logits, vocab_size, &best);
    out->rank = count_likely(logits, vocab_size, value_of(logits[token]));
    for (size_t i = 0; i < out->entries; ++i) {
        const bool is_there = i <= best.count;
        const int32_t id = i == 0 ? token : is_there ? (int32_t)(uint32_t)best.keys[i - 1] : -1;
        out->ids[i] = id;
        out->values[i] = id < 0 ? 0 : (float)((double)value_of(logits[id]) - total);
    }
}
