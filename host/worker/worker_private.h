// SPDX-License-Identifier: Apache-2.0
// Private to worker/: the host's side of a worker, and the sampler of the default one.
#ifndef BERTH_WORKER_WORKER_PRIVATE_H
#define BERTH_WORKER_WORKER_PRIVATE_H

#include "base/arena.h"
#include "model/model.h"
#include "worker/worker.h"

// Where a worker is in its life. Bits, so that a slot can name the set it is allowed in.
typedef enum berth_worker_state {
    BERTH_WORKER_CREATED = 1,
    BERTH_WORKER_BOUND = 2,    // init_device
    BERTH_WORKER_LOADED = 4,   // load_model
    BERTH_WORKER_CACHED = 8,   // initialize_from_config
    BERTH_WORKER_READY = 16,   // compile_or_warm_up_model, or a finished step
    BERTH_WORKER_PENDING = 32, // execute_model, before sample_tokens
    BERTH_WORKER_ASLEEP = 64,
    BERTH_WORKER_SHUT_DOWN = 128,
} berth_worker_state;

// What the default worker keeps behind `base`. Zeroed until its slots run.
typedef struct berth_default_worker {
    const berth_config *config;           // borrowed
    const berth_registry *registry;       // borrowed
    const berth_platform_entry *platform; // borrowed, NULL: native host execution
    berth_arena *arena;                   // borrowed
    berth_runtime *runtime;
    berth_dtype activation; // between ops
    berth_model_build *build;
    berth_plan *plan;
    int64_t max_model_len;
    int64_t num_blocks;
    int32_t *token_ids;                 // [logits rows of the largest step], results
    struct berth_candidate_token *heap; // [vocab_size], room of the sampler
} berth_default_worker;

// One object: what plugins see, then what only the host knows.
typedef struct berth_worker_object {
    berth_worker worker; // first, so that a berth_worker * is one of these
    berth_worker_api merged;
    berth_arena *arena; // owned; this object lives in it
    berth_worker_state state;
    const berth_owner *owner; // of the platform, NULL for native host execution
    berth_default_worker base;
} berth_worker_object;

static inline berth_default_worker *berth_worker_base(const berth_worker *worker) {
    return worker->base;
}

// ---- sampling -----------------------------------------------------------------------------------

typedef struct berth_candidate_token {
    double weight; // unnormalised probability
    int32_t id;
} berth_candidate_token;

// The token after a row of `vocab_size` logits. `heap` has room for vocab_size candidates. The
// lowest id wins a tie. A row without any finite maximum gives INTERNAL: the model has produced no
// distribution.
BERTH_MUST_CHECK berth_status berth_sample_token(const float *logits, size_t vocab_size,
                                                 const berth_sampling *sampling,
                                                 berth_candidate_token *heap, int32_t *out_token);
// First word of Philox4x32-10 with the 64-bit key and the 128-bit counter (counter, 0).
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
uint32_t berth_philox(uint64_t key, uint64_t counter);

#endif
