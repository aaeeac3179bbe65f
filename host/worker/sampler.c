// SPDX-License-Identifier: Apache-2.0
// One row of logits and a request's sampling parameters give one token.
//
// The random number depends on the seed and on the index of the token in its request alone, and the
// distribution is inverted in descending order of probability, so the same request gives the same
// text on every device and beside every neighbour. Candidates come from a heap, because the number
// that is looked at before the sum passes u is small while a vocabulary is large.
#include "worker/worker_private.h"

#include <math.h>

// The multipliers and the Weyl increments of the paper's table 2.
#define PHILOX_M0     UINT32_C(0xD2511F53)
#define PHILOX_M1     UINT32_C(0xCD9E8D57)
#define PHILOX_W0     UINT32_C(0x9E3779B9)
#define PHILOX_W1     UINT32_C(0xBB67AE85)
#define PHILOX_ROUNDS 10

uint32_t berth_philox(uint64_t key, uint64_t counter) {
    uint32_t x[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; ++round) {
        const uint64_t p0 = (uint64_t)PHILOX_M0 * x[0];
        const uint64_t p1 = (uint64_t)PHILOX_M1 * x[2];
        const uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ x[1] ^ k0, (uint32_t)p1,
                                  (uint32_t)(p0 >> 32) ^ x[3] ^ k1, (uint32_t)p0};
        for (int i = 0; i < 4; ++i) {
            x[i] = next[i];
        }
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    return x[0];
}

static size_t find_maximum(const float *logits, size_t count) {
    size_t best = 0;
    for (size_t i = 1; i < count; ++i) {
        if (logits[i] > logits[best] || isnan(logits[best])) {
            best = i;
        }
    }
    return best;
}

// Whether a is taken before b: more probable, or as probable with the lower id.
static bool comes_before(berth_candidate_token a, berth_candidate_token b) {
    return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
}

static void sift_down(berth_candidate_token *heap, size_t count, size_t at) {
    const berth_candidate_token moved = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && comes_before(heap[child + 1], heap[child])) {
            ++child;
        }
        if (!comes_before(heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

// Fills the heap with exp((logit - maximum) / temperature) and returns the sum. NaN counts as -inf.
static double fill_heap(const float *logits, size_t count, float maximum, double temperature,
                        berth_candidate_token *heap) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        const double scaled = ((double)logits[i] - (double)maximum) / temperature;
        const double weight = isnan(scaled) ? 0 : exp(scaled);
        heap[i] = (berth_candidate_token){.weight = weight, .id = (int32_t)i};
        sum += weight;
    }
    for (size_t i = count / 2; i-- > 0;) {
        sift_down(heap, count, i);
    }
    return sum;
}

berth_status berth_sample_token(const float *logits, size_t vocab_size,
                                const berth_sampling *sampling, berth_candidate_token *heap,
                                int32_t *out_token) {
    const size_t best = find_maximum(logits, vocab_size);
    if (!isfinite(logits[best])) {
        return BERTH_FAIL(INTERNAL,
                          "the model's logits have no finite maximum: no token can be chosen");
    }
    *out_token = (int32_t)best;
    if (sampling->temperature <= 0) {
        return BERTH_OK;
    }
    const double sum = fill_heap(logits, vocab_size, logits[best], sampling->temperature, heap);
    const double threshold = (double)berth_philox(sampling->seed, sampling->index) * 0x1p-32 * sum;
    double passed = 0;
    for (size_t left = vocab_size; left > 0 && heap[0].weight > 0; --left) {
        passed += heap[0].weight;
        *out_token = heap[0].id;
        if (passed > threshold) {
            break;
        }
        heap[0] = heap[left - 1];
        sift_down(heap, left - 1, 0);
    }
    return BERTH_OK;
}
