// SPDX-License-Identifier: Apache-2.0
// The sampler: greedy, seeded, and the generator under it.
#include "support/test.h"

#include <math.h>

#include "worker/worker_private.h"

#define VOCAB 5

static int32_t sample(const float *logits, double temperature, uint64_t seed, uint64_t index) {
    berth_candidate_token heap[VOCAB];
    const berth_sampling sampling = {
        .size = sizeof sampling,
        .temperature = temperature,
        .seed = seed,
        .index = index,
    };
    int32_t token = -1;
    CHECK_OK(berth_sample_token(logits, VOCAB, &sampling, heap, &token));
    return token;
}

// The known answer of the generator's authors for a zero key and a zero counter.
TEST(sampler_philox_gives_the_published_word) {
    CHECK_UINT(berth_philox(0, 0), 0x6627e8d5u);
}

TEST(sampler_philox_depends_on_every_half_of_key_and_counter) {
    const uint32_t base = berth_philox(0, 0);
    CHECK(berth_philox(1, 0) != base);
    CHECK(berth_philox(UINT64_C(1) << 32, 0) != base);
    CHECK(berth_philox(0, 1) != base);
    CHECK(berth_philox(0, UINT64_C(1) << 32) != base);
}

TEST(sampler_greedy_takes_the_maximum_and_the_lowest_id_of_a_tie) {
    const float logits[VOCAB] = {0.5F, 3.0F, -1.0F, 3.0F, 2.0F};
    CHECK_INT(sample(logits, 0, 0, 0), 1);
}

TEST(sampler_passes_over_nan_and_minus_infinity) {
    const float logits[VOCAB] = {NAN, -INFINITY, 1.0F, -INFINITY, NAN};
    CHECK_INT(sample(logits, 0, 0, 0), 2);
    for (uint64_t index = 0; index < 32; ++index) {
        CHECK_INT(sample(logits, 1.0, 7, index), 2);
    }
}

TEST(sampler_refuses_logits_without_a_finite_maximum) {
    const float logits[VOCAB] = {NAN, NAN, -INFINITY, NAN, NAN};
    berth_candidate_token heap[VOCAB];
    const berth_sampling sampling = {.size = sizeof sampling};
    int32_t token = 0;
    CHECK_STATUS(berth_sample_token(logits, VOCAB, &sampling, heap, &token), BERTH_INTERNAL);
}

// The definition, computed the long way: sort, add up, stop where the sum passes u.
static int32_t expected_token(const float *logits, double temperature, uint64_t seed,
                              uint64_t index) {
    double weights[VOCAB];
    bool is_taken[VOCAB] = {false};
    double sum = 0;
    for (int i = 0; i < VOCAB; ++i) {
        weights[i] = exp((double)logits[i] / temperature);
        sum += weights[i];
    }
    const double u = (double)berth_philox(seed, index) / 4294967296.0;
    double passed = 0;
    int best = -1;
    for (int round = 0; round < VOCAB && passed <= u; ++round) {
        best = -1;
        for (int i = 0; i < VOCAB; ++i) {
            if (!is_taken[i] && (best < 0 || weights[i] > weights[best])) {
                best = i;
            }
        }
        is_taken[best] = true;
        passed += weights[best] / sum;
    }
    return best;
}

TEST(sampler_inverts_the_descending_distribution) {
    const float logits[VOCAB] = {0.1F, 1.5F, 0.1F, -0.7F, 1.2F};
    for (uint64_t seed = 0; seed < 4; ++seed) {
        for (uint64_t index = 0; index < 200; ++index) {
            CHECK_INT(sample(logits, 0.8, seed, index), expected_token(logits, 0.8, seed, index));
        }
    }
}

TEST(sampler_frequencies_follow_the_softmax) {
    const float logits[VOCAB] = {0.0F, 1.0F, 2.0F, -1.0F, 0.5F};
    const int draws = 20000;
    int counts[VOCAB] = {0};
    double sum = 0;
    for (int i = 0; i < draws; ++i) {
        ++counts[sample(logits, 1.0, 42, (uint64_t)i)];
    }
    for (int i = 0; i < VOCAB; ++i) {
        sum += exp((double)logits[i]);
    }
    for (int i = 0; i < VOCAB; ++i) {
        CHECK_NEAR((double)counts[i] / draws, exp((double)logits[i]) / sum, 0.015);
    }
}
