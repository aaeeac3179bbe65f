// SPDX-License-Identifier: Apache-2.0
// One row of logits and a request's sampling parameters give one token.
//
// The random number depends on the seed and on the index of the token in its request alone, so the
// same request gives the same text on every device and beside every neighbour.
#include "worker/sampler.h"

#include <math.h>
#include <string.h>

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

// ---- bans and penalties -------------------------------------------------------------------------

#define IN_PROMPT UINT32_C(0x80000000) // of a count; the rest is how often the output has the id

static bool is_in(const berth_sampler *sampler, int32_t id) {
    return id >= 0 && (size_t)id < sampler->vocab_size;
}

static bool changes_logits(const berth_sampling *sampling) {
    return sampling->banned_count > 0 || sampling->presence_penalty != 0 ||
           sampling->frequency_penalty != 0 || sampling->repetition_penalty != 0;
}

static void ban(berth_sampler *sampler, const berth_sampling *sampling) {
    for (uint64_t i = 0; i < sampling->banned_count; ++i) {
        if (is_in(sampler, sampling->banned_ids[i])) {
            sampler->logits[sampling->banned_ids[i]] = -INFINITY;
        }
    }
}

static void count_ids(berth_sampler *sampler, const berth_sampling *sampling) {
    for (uint64_t i = 0; i < sampling->prompt_count; ++i) {
        if (is_in(sampler, sampling->prompt_ids[i])) {
            sampler->counts[sampling->prompt_ids[i]] = IN_PROMPT;
        }
    }
    for (uint64_t i = 0; i < sampling->output_count; ++i) {
        if (is_in(sampler, sampling->output_ids[i])) {
            ++sampler->counts[sampling->output_ids[i]];
        }
    }
}

static float penalize(float logit, uint32_t count, const berth_sampling *sampling) {
    const float repetition = (float)sampling->repetition_penalty;
    const uint32_t times = count & ~IN_PROMPT;
    if (repetition != 0) {
        logit = logit > 0 ? logit / repetition : logit * repetition;
    }
    logit -= (float)sampling->frequency_penalty * (float)times;
    return times > 0 ? logit - (float)sampling->presence_penalty : logit;
}

// Each id once, at its first sight, which also clears its count.
static void penalize_ids(berth_sampler *sampler, const berth_sampling *sampling, const int32_t *ids,
                         uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        if (is_in(sampler, ids[i]) && sampler->counts[ids[i]] != 0) {
            float *logit = &sampler->logits[ids[i]];
            *logit = penalize(*logit, sampler->counts[ids[i]], sampling);
            sampler->counts[ids[i]] = 0;
        }
    }
}

static const float *apply_penalties(berth_sampler *sampler, const float *logits,
                                    const berth_sampling *sampling) {
    if (!changes_logits(sampling)) {
        return logits;
    }
    memcpy(sampler->logits, logits, sampler->vocab_size * sizeof *logits);
    ban(sampler, sampling);
    count_ids(sampler, sampling);
    penalize_ids(sampler, sampling, sampling->prompt_ids, sampling->prompt_count);
    penalize_ids(sampler, sampling, sampling->output_ids, sampling->output_count);
    return sampler->logits;
}

// ---- the choice ---------------------------------------------------------------------------------

#define LANES 16
#define BLOCK 256 // logits

// Why lanes: one maximum after the other would wait for each.
float berth_largest_logit(const float *logits, size_t count) {
    float lanes[LANES];
    for (size_t lane = 0; lane < LANES; ++lane) {
        lanes[lane] = -INFINITY;
    }
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t lane = 0; lane < LANES; ++lane) {
            lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
        }
    }
    float largest = -INFINITY;
    for (; i < count; ++i) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    for (size_t lane = 0; lane < LANES; ++lane) {
        largest = lanes[lane] > largest ? lanes[lane] : largest;
    }
    return largest;
}

// The first of the largest logits, in one pass; 0 when there is none above -infinity.
static size_t find_likeliest(const float *logits, size_t count) {
    float largest = -INFINITY;
    size_t id = 0;
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t some = count - first < BLOCK ? count - first : BLOCK;
        const float maximum = berth_largest_logit(logits + first, some);
        if (maximum > largest) {
            largest = maximum;
            id = first;
        }
    }
    while (largest > -INFINITY && logits[id] != largest) {
        ++id;
    }
    return id;
}

berth_status berth_sampler_no_choice(void) {
    return BERTH_FAIL(INTERNAL,
                      "the model's logits have no finite maximum: no token can be chosen");
}

bool berth_sampling_is_plain(const berth_sampling *sampling) {
    return sampling->logprobs == 0 && !changes_logits(sampling);
}

bool berth_sampling_is_greedy(const berth_sampling *sampling) {
    return !(sampling->temperature > 0) && berth_sampling_is_plain(sampling);
}

berth_status berth_sample_token(berth_sampler *sampler, const float *logits,
                                const berth_sampling *sampling, int32_t *out_token) {
    const float *row = apply_penalties(sampler, logits, sampling);
    const size_t likeliest = find_likeliest(row, sampler->vocab_size);
    if (!isfinite(row[likeliest])) {
        return berth_sampler_no_choice();
    }
    *out_token =
        (int32_t)(sampling->temperature > 0 ? berth_draw(sampler, row, row[likeliest], sampling)
                                            : likeliest);
    return BERTH_OK;
}

// ---- a step -------------------------------------------------------------------------------------

berth_status berth_sampler_init(berth_sampler *sampler, size_t vocab_size, size_t rows,
                                berth_arena *arena) {
    *sampler = (berth_sampler){
        .vocab_size = vocab_size,
        .logits = BERTH_ARENA_ARRAY(arena, float, vocab_size),
        .counts = BERTH_ARENA_ARRAY(arena, uint32_t, vocab_size),
        .candidates = BERTH_ARENA_ARRAY(arena, berth_candidate_token, vocab_size),
        .buckets = BERTH_ARENA_ARRAY(arena, double, BERTH_BUCKETS),
        .token_ids = BERTH_ARENA_ARRAY(arena, int32_t, rows),
        .logprobs = BERTH_ARENA_ARRAY(arena, float, rows *BERTH_LOGPROBS_MAX),
        .logprob_ids = BERTH_ARENA_ARRAY(arena, int32_t, rows * BERTH_LOGPROBS_MAX),
        .ranks = BERTH_ARENA_ARRAY(arena, int32_t, rows),
    };
    const bool is_complete = sampler->logits && sampler->counts && sampler->candidates &&
                             sampler->buckets && sampler->token_ids && sampler->logprobs &&
                             sampler->logprob_ids && sampler->ranks;
    return is_complete ? BERTH_OK : berth_arena_exhausted(arena, "a step's results");
}

static void fill_logprobs(berth_sampler *sampler, const berth_sampling *sampling, size_t row,
                          berth_model_output *out) {
    int32_t *ids = sampler->logprob_ids + row * BERTH_LOGPROBS_MAX;
    const uint64_t wanted = sampling ? sampling->logprobs : 0;
    const size_t entries = wanted < BERTH_LOGPROBS_MAX ? (size_t)wanted : BERTH_LOGPROBS_MAX;
    for (size_t i = entries; i < BERTH_LOGPROBS_MAX; ++i) {
        ids[i] = -1;
    }
    if (entries == 0) {
        return;
    }
    berth_logprob_row result = {
        .ids = ids,
        .values = sampler->logprobs + row * BERTH_LOGPROBS_MAX,
        .entries = entries,
    };
    berth_logprobs_fill(out->logits + row * sampler->vocab_size, sampler->vocab_size,
                        sampler->token_ids[row], &result);
    sampler->ranks[row] = result.rank;
    out->logprobs = sampler->logprobs;
    out->logprob_ids = sampler->logprob_ids;
    out->chosen_ranks = sampler->ranks;
    out->logprob_stride = BERTH_LOGPROBS_MAX;
}

berth_status berth_sampler_run(berth_sampler *sampler, const berth_sampling *const *sampling,
                               berth_model_output *out) {
    for (uint64_t row = 0; row < out->row_count; ++row) {
        sampler->token_ids[row] = -1;
        if (sampling[row]) {
            BERTH_TRY(berth_sample_token(sampler, out->logits + row * sampler->vocab_size,
                                         sampling[row], &sampler->token_ids[row]));
        }
        fill_logprobs(sampler, sampling[row], row, out);
    }
    out->token_ids = sampler->token_ids;
    return BERTH_OK;
}
