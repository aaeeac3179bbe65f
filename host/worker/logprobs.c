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

#define BLOCK 64 // logits that are weighed at a time

static double log_of_sum(const float *logits, size_t count) {
    double weights[BLOCK];
    double largest = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        largest = logits[i] > largest ? (double)logits[i] : largest;
    }
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t some = count - first < BLOCK ? count - first : BLOCK;
        berth_weigh(logits + first, some, largest, 1, weights);
        for (size_t i = 0; i < some; ++i) {
            sum += weights[i];
        }
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

// Once as many as are wanted are there, of equal ones the first counts.
static void rank(const float *logits, size_t count, ranking *best) {
    float bound = -INFINITY; // of the last of them
    for (size_t i = 0; i < count && best->limit > 0; ++i) {
        if (best->count < best->limit || logits[i] > bound) {
            insert(best, berth_candidate_key(logits[i], i));
            bound = value_of(logits[(uint32_t)best->keys[best->count - 1]]);
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
