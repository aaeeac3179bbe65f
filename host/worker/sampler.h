// SPDX-License-Identifier: Apache-2.0
// Private to worker/: rows of logits to tokens, as berth_sampling says (plugin-api/berth/worker.h).
// Everything it needs is reserved once; a step allocates nothing.
#ifndef BERTH_WORKER_SAMPLER_H
#define BERTH_WORKER_SAMPLER_H

#include <berth/worker.h>

#include "base/arena.h"
#include "base/status.h"

// An id that may still be chosen.
typedef struct berth_candidate_token {
    uint64_t key;  // ascending: descending logit, then ascending id
    double weight; // unnormalised probability
} berth_candidate_token;

#define BERTH_BUCKETS 1024

typedef struct berth_sampler {
    size_t vocab_size;
    float *logits;                     // [vocab_size], a row after bans and penalties
    uint32_t *counts;                  // [vocab_size], 0 between rows
    berth_candidate_token *candidates; // [vocab_size]
    double *buckets;                   // [BERTH_BUCKETS], weights of logits that are about alike
    int32_t *token_ids;                // [rows], this and the rest: the results of a step
    float *logprobs;                   // [rows, BERTH_LOGPROBS_MAX]
    int32_t *logprob_ids;              // [rows, BERTH_LOGPROBS_MAX]
    int32_t *ranks;                    // [rows]
} berth_sampler;

// `rows`: of the largest step.
BERTH_MUST_CHECK berth_status berth_sampler_init(berth_sampler *sampler, size_t vocab_size,
                                                 size_t rows, berth_arena *arena);
// All rows of a step: `out` has its logits and its row count, and gets the rest.
BERTH_MUST_CHECK berth_status berth_sampler_run(berth_sampler *sampler,
                                                const berth_sampling *const *sampling,
                                                berth_model_output *out);
// The token after one row of `vocab_size` logits. A row without any finite maximum is INTERNAL: the
// model has produced no distribution. So is one of which the bans leave nothing.
BERTH_MUST_CHECK berth_status berth_sample_token(berth_sampler *sampler, const float *logits,
                                                 const berth_sampling *sampling,
                                                 int32_t *out_token);

// The same for a temperature above 0, of a row after bans and penalties and its largest logit,
// which is finite.
size_t berth_draw(berth_sampler *sampler, const float *logits, float maximum,
                  const berth_sampling *sampling);

// Whether the logits count as they are, and only the token: nothing is banned, penalised or told.
bool berth_sampling_is_plain(const berth_sampling *sampling);
// Whether only the largest logit matters: beyond that nothing is drawn.
bool berth_sampling_is_greedy(const berth_sampling *sampling);
berth_status berth_sampler_no_choice(void); // the failure for a row without a finite maximum

// Entries of one row: the chosen id, then the likeliest ones in order.
typedef struct berth_logprob_row {
    int32_t *ids;  // [entries], -1 past the vocabulary
    float *values; // [entries], logarithms of probabilities
    size_t entries;
    int32_t rank; // ids at least as likely as the chosen one
} berth_logprob_row;

void berth_logprobs_fill(const float *logits, size_t vocab_size, int32_t token,
                         berth_logprob_row *out);
// Where a logit stands in the order of candidates: ascending keys are descending logits, then
// ascending ids.
uint64_t berth_candidate_key(float logit, size_t id);

// NaN is none; -infinity when there is none.
float berth_largest_logit(const float *logits, size_t count);
// Unnormalised probabilities e^((logit − maximum) / temperature), of none of which the logit is
// above the maximum; 0 for NaN and for what is below e^−700.
void berth_weigh(const float *logits, size_t count, double maximum, double temperature,
                 double *out);

// First word of Philox4x32-10 with the 64-bit key and the 128-bit counter (counter, 0).
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
uint32_t berth_philox(uint64_t key, uint64_t counter);

#endif
