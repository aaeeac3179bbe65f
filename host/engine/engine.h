// SPDX-License-Identifier: Apache-2.0
// The engine: requests in, tokens out. Owns the scheduler and the KV blocks; reaches the model
// through a worker.
//
// The scheduler has no phases: a request's computed count catches up with its token count, as many
// tokens per step as the budget allows, so prompts and single tokens of many requests share a step
// (continuous batching). Requests beyond what fits wait, first come first served. When KV blocks
// run out, the youngest running request gives up its own and is computed again later: none is lost,
// and its text is the same. Full blocks whose tokens begin a later request are used again (prefix
// caching). One thread owns an engine.
#ifndef BERTH_ENGINE_ENGINE_H
#define BERTH_ENGINE_ENGINE_H

#include <berth/worker.h>

#include "base/status.h"
#include "base/str.h"
#include "base/text.h"
#include "config/config.h"
#include "tokenizer/tokenizer.h"
#include "worker/worker.h"

typedef struct berth_engine berth_engine;

typedef enum berth_finish {
    BERTH_FINISH_NOT_YET,
    BERTH_FINISH_LENGTH, // max_tokens or the model's length
    BERTH_FINISH_STOP,   // a stop id or a stop string
    BERTH_FINISH_ABORTED,
} berth_finish;

// Zeroed members ask for nothing; those that berth_sampling has too mean what they mean there.
typedef struct berth_request {
    const int32_t *prompt; // copied
    size_t prompt_count;   // > 0
    int64_t max_tokens;    // > 0
    int64_t min_tokens;    // so many come at least: before that, nothing stops the output

    double temperature; // 0: greedy
    uint64_t seed;
    int64_t top_k;
    double top_p;
    double min_p;
    double presence_penalty;
    double frequency_penalty;
    double repetition_penalty;
    size_t logprobs; // entries for each token, the chosen one's first; <= BERTH_LOGPROBS_MAX

    const int32_t *stop_ids; // copied; the one that stops is the last token of the output
    size_t stop_count;
    // Text of the output in pieces, without special tokens. Borrowed until the request has ended.
    const berth_tokenizer *tokenizer;
    const berth_str *stop_strings; // copied; they need the tokenizer, and the text ends before them
    size_t stop_string_count;

    bool skips_prefix_cache; // neither uses blocks of others nor leaves any to them
    bool wants_logits;       // keep the logits of every output row and of the whole prompt (eval)
} berth_request;

// What a step gave one request: borrowed until the next step.
typedef struct berth_output {
    uint64_t request; // id
    int32_t token;    // new token, -1: none (prefill of a request that wants logits)
    berth_finish finish;
    berth_str text;             // that is certain now; what may be the start of a stop string waits
    berth_str stop;             // the stop string that ended it, else empty
    const float *logprobs;      // [logprob_count]
    const int32_t *logprob_ids; // [logprob_count], the new token's first
    size_t logprob_count;
    int32_t rank;        // of the new token, 1: the likeliest; 0 without logprobs
    const float *logits; // [logits_rows, vocab] when wanted: the rows computed in this step
    size_t logits_rows;
    size_t first_position; // position of the first of these rows
} berth_output;

// Counts since the engine was created, and requests at the moment.
typedef struct berth_engine_stats {
    uint64_t steps;
    uint64_t computed_tokens;
    uint64_t cached_tokens; // that a prefix saved
    uint64_t preemptions;
    uint64_t running;
    uint64_t waiting; // for blocks or their turn
} berth_engine_stats;

// Takes a worker that has loaded its model through the caches and warm-up. The engine borrows it.
// Why not from init_device on: whoever starts a worker tells a device that is missing, a checkpoint
// that is wrong and memory that is short apart.
BERTH_MUST_CHECK berth_status berth_engine_create(const berth_config *config, berth_worker *worker,
                                                  berth_engine **out_engine);
// Tokens of prompt and output together.
int64_t berth_engine_max_model_len(const berth_engine *engine);
// INVALID_ARGUMENT when the prompt is empty, does not fit the model's length or holds an id that is
// not in the vocabulary, and when a parameter is out of its range. The output ends at the model's
// length at the latest.
BERTH_MUST_CHECK berth_status berth_engine_add(berth_engine *engine, const berth_request *request,
                                               uint64_t *out_id);
// Forgets a request; no output names it any more. Text that waited to become certain is added to
// `rest`, unless that is NULL. An id that has ended does nothing.
void berth_engine_abort(berth_engine *engine, uint64_t id, berth_text *rest);
bool berth_engine_is_idle(const berth_engine *engine);
// One turn: schedules, executes, samples. Outputs are borrowed until the next step. It allocates
// nothing. After a failure the requests are as they were, so that a step may be tried again.
BERTH_MUST_CHECK berth_status berth_engine_step(berth_engine *engine,
                                                const berth_output **out_outputs,
                                                size_t *out_count);
// Gives the device's memory back: level 1 keeps the weights in host memory, 2 discards them, and
// wake_up reads the checkpoint again. What was kept of prefixes is gone. WRONG_STATE while requests
// have not ended.
BERTH_MUST_CHECK berth_status berth_engine_sleep(berth_engine *engine, uint64_t level);
// BERTH_SLEEP_* of what is to be awake, 0: all; a step needs all of it. Requests may be added
// before.
BERTH_MUST_CHECK berth_status berth_engine_wake_up(berth_engine *engine, uint64_t tags);
berth_engine_stats berth_engine_get_stats(const berth_engine *engine);
void berth_engine_destroy(berth_engine *engine);

#endif
