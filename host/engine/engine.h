// SPDX-License-Identifier: Apache-2.0
// The engine: requests in, tokens out. Owns the scheduler and the KV blocks; reaches the model
// through a worker.
//
// The scheduler has no phases: a request's computed count catches up with its token count, as many
// tokens per step as the budget allows, so prompts and single tokens of many requests share a step
// (continuous batching). One thread owns an engine.
#ifndef BERTH_ENGINE_ENGINE_H
#define BERTH_ENGINE_ENGINE_H

#include <berth/worker.h>

#include "base/status.h"
#include "config/config.h"
#include "worker/worker.h"

typedef struct berth_engine berth_engine;

typedef enum berth_finish {
    BERTH_FINISH_NOT_YET,
    BERTH_FINISH_LENGTH, // max_tokens or the model's length
    BERTH_FINISH_STOP,   // a stop id
    BERTH_FINISH_ABORTED,
} berth_finish;

typedef struct berth_request {
    const int32_t *prompt; // copied
    size_t prompt_count;   // > 0
    int64_t max_tokens;    // > 0
    double temperature;    // 0: greedy
    uint64_t seed;
    const int32_t *stop_ids; // copied
    size_t stop_count;
    bool wants_logits; // keep the logits of every output row and of the whole prompt (eval)
} berth_request;

// What a step gave one request: borrowed until the next step.
typedef struct berth_output {
    uint64_t request; // id
    int32_t token;    // new token, -1: none (prefill of a request that wants logits)
    berth_finish finish;
    const float *logits; // [logits_rows, vocab] when wanted: the rows computed in this step
    size_t logits_rows;
    size_t first_position; // position of the first of these rows
} berth_output;

// Takes a worker that has loaded its model through the caches and warm-up. The engine borrows it.
// Why not from init_device on: whoever starts a worker tells a device that is missing, a checkpoint
// that is wrong and memory that is short apart.
BERTH_MUST_CHECK berth_status berth_engine_create(const berth_config *config, berth_worker *worker,
                                                  berth_engine **out_engine);
// Tokens of prompt and output together.
int64_t berth_engine_max_model_len(const berth_engine *engine);
// INVALID_ARGUMENT when the prompt is empty, does not fit the model's length or holds an id that is
// not in the vocabulary. The output ends at the model's length at the latest.
BERTH_MUST_CHECK berth_status berth_engine_add(berth_engine *engine, const berth_request *request,
                                               uint64_t *out_id);
void berth_engine_abort(berth_engine *engine, uint64_t id);
bool berth_engine_is_idle(const berth_engine *engine);
// One turn: schedules, executes, samples. Outputs are borrowed until the next step.
BERTH_MUST_CHECK berth_status berth_engine_step(berth_engine *engine,
                                                const berth_output **out_outputs,
                                                size_t *out_count);
void berth_engine_destroy(berth_engine *engine);

#endif
