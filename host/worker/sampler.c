// SPDX-License-Identifier: Apache-2.0
// One row of logits and a request's sampling parameters give one token.
//
// The random number depends on the seed and on the index of the token in its request alone, and the
// distribution is inverted in descending order of probability, so the same request gives the same
// text on every device and beside every neighbour.
//
// Nothing is sorted: top_k, top_p and the random number each ask for a place in the order, and
// selection finds that in time proportional to the vocabulary. A heap would have to give up, one by
// one, half the vocabulary of a flat distribution.
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

// ---- places in the order ------------------------------------------------------------------------

uint64_t berth_candidate_key(float logit, size_t id) {
    const float value = isnan(logit) ? -INFINITY : logit + 0.0F; // -0 is 0
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t ascending = bits >> 31 ? ~bits : bits | UINT32_C(0x80000000);
    return (uint64_t)~ascending << 32 | (uint32_t)id;
}

static size_t id_of(const berth_candidate_token *candidate) {
    return (uint32_t)candidate->key;
}

static void swap(berth_candidate_token *a, berth_candidate_token *b) {
    const berth_candidate_token kept = *a;
    *a = *b;
    *b = kept;
}

static void sort_two(berth_candidate_token *a, berth_candidate_token *b) {
    if (b->key < a->key) {
        swap(a, b);
    }
}

// Divides [begin, end), which is not empty, at one of its candidates and returns that one's place:
// all before it are likelier, all after it less likely.
static size_t divide(berth_candidate_token *all, size_t begin, size_t end) {
    berth_candidate_token *last = &all[end - 1];
    berth_candidate_token *middle = &all[begin + (end - begin) / 2];
    sort_two(&all[begin], middle);
    sort_two(middle, last);
    sort_two(&all[begin], middle);
    swap(middle, last); // the median divides
    const uint64_t key = last->key;
    size_t place = begin;
    // Why no branch: it would go either way half of the time, which costs more than the copies.
    for (size_t i = begin; i + 1 < end; ++i) {
        const berth_candidate_token candidate = all[i];
        all[i] = all[place];
        all[place] = candidate;
        place += candidate.key < key;
    }
    swap(&all[place], last);
    return place;
}

// Brings the `wanted` likeliest of `count` to the front, the least likely of them last.
static void bring_first(berth_candidate_token *all, size_t count, size_t wanted) {
    size_t begin = 0;
    size_t end = count;
    while (begin < end) {
        const size_t place = divide(all, begin, end);
        if (place + 1 == wanted) {
            return;
        }
        if (place < wanted) {
            begin = place + 1;
        } else {
            end = place;
        }
    }
}

// Brings to the front the fewest of the likeliest whose weights add up to more than `target`, the
// least likely of them last, and returns how many they are and what they weigh.
static size_t bring_weight(berth_candidate_token *all, size_t count, double target,
                           double *out_weight) {
    size_t begin = 0;
    size_t end = count;
    double before = 0; // weight of [0, begin)
    while (begin < end) {
        const size_t place = divide(all, begin, end);
        double weight = before;
        for (size_t i = begin; i < place; ++i) {
            weight += all[i].weight;
        }
        if (weight > target) {
            end = place;
            continue;
        }
        before = weight + all[place].weight;
        begin = place + 1;
        if (before > target) {
            break;
        }
    }
    *out_weight = before;
    return begin;
}

// ---- the choice ---------------------------------------------------------------------------------

#define LANES 16

// The largest logit; NaN is none. Why lanes: one maximum after the other would wait for each.
static float find_maximum(const float *logits, size_t count) {
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

static int32_t find_first(const float *logits, float value) {
    int32_t id = 0;
    while (logits[id] != value) {
        ++id;
    }
    return id;
}

// Everybody that min_p and top_k let through; returns how many. What has no probability at all is
// left out.
static size_t admit(berth_sampler *sampler, const float *logits, float maximum,
                    const berth_sampling *sampling) {
    berth_candidate_token *all = sampler->candidates;
    const double lowest = sampling->min_p > 0 ? log(sampling->min_p) * sampling->temperature
                                              : -INFINITY; // of logit - maximum
    const size_t vocab_size = sampler->vocab_size;
    const size_t wanted =
        sampling->top_k > 0 && sampling->top_k < vocab_size ? sampling->top_k : vocab_size;
    const size_t room = wanted < vocab_size / 2 ? 2 * wanted : vocab_size;
    float bound = -INFINITY;
    size_t count = 0;
    for (size_t i = 0; i < vocab_size; ++i) {
        if (!(logits[i] > bound) || (double)logits[i] - (double)maximum < lowest) {
            continue;
        }
        all[count++].key = berth_candidate_key(logits[i], i);
        // Once as many as are wanted are there, only what is likelier than the last one of them
        // comes in: of equal ones the first counts.
        if (count == room && wanted < count) {
            bring_first(all, count, wanted);
            count = wanted;
            bound = logits[id_of(&all[wanted - 1])];
        }
    }
    if (wanted < count) {
        bring_first(all, count, wanted);
    }
    return wanted < count ? wanted : count;
}

static double weigh(berth_sampler *sampler, const float *logits, float maximum, double temperature,
                    size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        berth_candidate_token *candidate = &sampler->candidates[i];
        const double scaled = ((double)logits[id_of(candidate)] - (double)maximum) / temperature;
        candidate->weight = exp(scaled);
        sum += candidate->weight;
    }
    return sum;
}

static int32_t choose(berth_sampler *sampler, const float *logits, float maximum,
                      const berth_sampling *sampling) {
    berth_candidate_token *all = sampler->candidates;
    size_t count = admit(sampler, logits, maximum, sampling);
    double sum = weigh(sampler, logits, maximum, sampling->temperature, count);
    if (sampling->top_p > 0 && sampling->top_p < 1) {
        // Why nextafter: a share that is reached exactly is enough.
        count = bring_weight(all, count, nextafter(sampling->top_p * sum, 0), &sum);
    }
    // u is at most 1 - 2^-32, far more below 1 than sums of a vocabulary are off by rounding, so
    // the weight is reached before the ids whose weight is 0.
    const double u = (double)berth_philox(sampling->seed, sampling->index) * 0x1p-32;
    count = bring_weight(all, count, u * sum, &sum);
    return (int32_t)id_of(&all[count - 1]);
}

berth_status berth_sample_token(berth_sampler *sampler, const float *logits,
                                const berth_sampling *sampling, int32_t *out_token) {
    const float *row = apply_penalties(sampler, logits, sampling);
    const float maximum = find_maximum(row, sampler->vocab_size);
    if (!isfinite(maximum)) {
        return BERTH_FAIL(INTERNAL,
                          "the model's logits have no finite maximum: no token can be chosen");
    }
    *out_token = sampling->temperature > 0 ? choose(sampler, row, maximum, sampling)
                                           : find_first(row, maximum);
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
        .token_ids = BERTH_ARENA_ARRAY(arena, int32_t, rows),
        .logprobs = BERTH_ARENA_ARRAY(arena, float, rows *BERTH_LOGPROBS_MAX),
        .logprob_ids = BERTH_ARENA_ARRAY(arena, int32_t, rows * BERTH_LOGPROBS_MAX),
        .ranks = BERTH_ARENA_ARRAY(arena, int32_t, rows),
    };
    const bool is_complete = sampler->logits && sampler->counts && sampler->candidates &&
                             sampler->token_ids && sampler->logprobs && sampler->logprob_ids &&
                             sampler->ranks;
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
